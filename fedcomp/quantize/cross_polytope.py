"""Less than a bit an entry after a random rotation: of each group of entries, the place and the sign of the largest one."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, Vector, check_choice, check_range
from fedcomp.quantize.chunk_norm import exact_sum, is_ordinary, largest_scale, normalize, squared_norm
from fedcomp.quantize.eden import WORST_VARIANCE
from fedcomp.quantize.error_bound import Contracting, ErrorBound, Unbiased
from fedcomp.quantized import (
    MAX_CHUNK,
    MIN_CHUNK,
    SHARES,
    CrossPolytope,
    Rotation,
    aligned_buffer,
    group_sizes,
    half_bits,
    power_of_two_parts,
    rate_bits,
    transform_transposed,
)

MAX_BITS = 0.75
"""The bits an entry of groups of four; with one bit, signs alone are as good."""
MAX_FACTOR = 72.0
"""4 (log2(2^15) + 2) and the rounding of rates: `NearestVertex._worst_factor`."""


@dataclass(frozen=True, slots=True)
class NearestVertex:
    """Rotate each chunk at random, and take the nearest vertex of the cross-polytope for each group of m entries.

    That is the place of the group's largest entry, and its sign: log2(m) + 1 bits for m entries.  Vertices of a rotated
    cross-polytope are the code of Gandikota et al., "vqSGD: Vector Quantized Stochastic Gradient Descent", AISTATS 2021, which
    draws them at random; here the nearest one is taken, and the scale of Vargaftik et al., "EDEN", ICML 2022, section 4,
    makes it unbiased.

    `bits` an entry are sent on average.  A block of 65,536 entries gets bits in proportion to its norm: this has the least
    squared error, because the error of a block is close to its squared norm over twice its bits times ln 2.

    For a rotated chunk r of the entries x and its vertices c, `scale` is "unbiased", |x|^2 / <c, r>, or "minimal",
    <c, r> / |c|^2.  The latter has the least squared error, for use with error feedback.  What `Eden` says of short vectors
    holds here too.
    """

    bits: float
    scale: str = "unbiased"

    def __post_init__(self) -> None:
        check_range("bits", self.bits, above=0, most=MAX_BITS, what="the bits sent of an entry")
        check_choice("scale", self.scale, ("unbiased", "minimal"))

    def quantize(self, value: CompensatedUpdate, /) -> CrossPolytope:
        """Return vertices and scales.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        rotation = Rotation(value.context.seed % 2**64, value.n)
        near, far = (aligned_buffer(rotation.block_size, np.float32) for _ in range(2))
        rates = self._rates(value, rotation, far)
        scales: list[float] = []
        symbols: list[NDArray[np.uint16]] = []
        for places, rate in zip(rotation.rotated(value.blocks(MAX_CHUNK), near), rates.tolist(), strict=True):
            for part in power_of_two_parts(places.stop - places.start):
                scale, found = self._quantize(near[part], far[part], rate)
                scales.append(scale)
                symbols += found if scale else []
        kept = np.concatenate(symbols) if symbols else np.empty(0, np.uint16)
        return CrossPolytope(rotation, rates, np.array(scales, np.float32), kept)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the variance w, or for the scale "minimal" the factor w / (1 + w).

        The largest entry of a group is at least the mean of its magnitudes, so 1 + w is at most m times that of one bit
        an entry (`Eden`).  Where all rotated entries have the same magnitude, it is m; usually it is far less.
        A short vector may have few rotations: then the scale "unbiased" has no bound.
        """
        variance = (1 + WORST_VARIANCE) * self._worst_factor(n) - 1
        if self.scale == "minimal":
            return Contracting(variance / (1 + variance))
        return Unbiased(variance) if n >= MIN_CHUNK else None

    def contracting(self) -> "NearestVertex":
        """Return the quantizer with the scale of least error."""
        return replace(self, scale="minimal")

    def _worst_factor(self, n: int) -> float:
        """Return the largest ratio of 1 + w to that of one bit an entry: m for groups of m entries.

        With a share f of the entries in groups of 2 m, it is 2 m (2 - f): a chunk of d entries has d (2 - f) / 2 m
        groups, and the mean magnitude of a group counts 1 / 2 m or more.  Times the bits an entry, that is at most
        (2 - f)^2 (log2(m) + 2).  Blocks that get bits in proportion to their norms have no more than this on average,
        but for the rounding of their rates.
        """
        if Rotation(0, n).num_blocks > 1:
            return MAX_FACTOR / self.bits
        rate = int(_nearest_rates(np.array([self.bits]))[0])
        (small, _), (large, _) = group_sizes(MAX_CHUNK, rate)
        return large * (2 - rate % SHARES / SHARES) if rate % SHARES else small

    def _rates(self, value: CompensatedUpdate, rotation: Rotation, spare: Vector) -> NDArray[np.uint8]:
        """Return the rate of each block."""
        sizes = np.array([block.stop - block.start for block in rotation.blocks()])
        sizes[-1] = rotation.rest
        bits = np.array([self.bits])
        if sizes.size > 1:
            norms = np.zeros(sizes.size)
            for block, (_, entries) in enumerate(value.blocks(MAX_CHUNK)):
                norms[min(block, sizes.size - 1)] += _squared_norm(entries, spare[:MAX_CHUNK])
            bits = _allocate(self.bits, np.sqrt(norms / sizes), sizes)
        return _nearest_rates(bits)

    def _quantize(self, entries: Vector, spare: Vector, rate: int) -> tuple[float, list[NDArray[np.uint16]]]:
        """Return the scale of a chunk, a float32, and its symbols.  `entries` and `spare` are overwritten."""
        d = entries.size
        energy, exponent, peak = normalize(entries, spare)
        rotated, spare = transform_transposed(entries, spare)
        product, begin = 0.0, 0
        symbols: list[NDArray[np.uint16]] = []
        for size, count in group_sizes(d, rate):
            if count:
                part = slice(begin, begin + size * count)
                found, magnitudes = _largest(rotated[part], spare[part], count)
                symbols.append(found)
                product += exact_sum(magnitudes)
                begin = part.stop
        if not product > 0:
            return 0.0, symbols
        scale = energy / product if self.scale == "unbiased" else product / (d * sum(map(len, symbols)))
        scale *= math.ldexp(1, half_bits(d) + exponent)
        return float(np.float32(min(scale, largest_scale(peak)))), symbols


def _nearest_rates(bits: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the rates that are closest to these bits an entry."""
    known = -rate_bits()
    rates: NDArray[np.uint8] = np.searchsorted((known[1:] + known[:-1]) / 2, -bits).astype(np.uint8)
    return rates


def _allocate(mean: float, norms: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the bits an entry of each block: in proportion to `norms`, `mean` on average, at most `MAX_BITS`."""
    budget = mean * sizes.sum()
    full = np.zeros(sizes.size, np.bool_)
    bits = np.full(sizes.size, mean)
    while (weights := np.where(full, 0, norms * sizes)).any():
        rest = budget - MAX_BITS * sizes[full].sum()
        bits = np.where(full, MAX_BITS, norms * (rest / math.fsum(weights.tolist())))
        over = bits > MAX_BITS
        if not over.any():
            break
        full |= over
    return bits.clip(max=MAX_BITS)


def _squared_norm(entries: Vector, spare: Vector) -> float:
    """Return the squared norm of up to `MAX_CHUNK` entries, of any magnitude."""
    with np.errstate(over="ignore"):
        np.multiply(entries, entries, out=spare[: entries.size])
        spare[entries.size :] = 0
        norm = exact_sum(spare)
    if is_ordinary(norm):
        return norm
    wide = np.zeros(MAX_CHUNK)
    wide[: entries.size] = entries
    return squared_norm(wide, wide)


def _largest(rotated: Vector, spare: Vector, count: int) -> tuple[NDArray[np.uint16], Vector]:
    """Return the symbols of `count` groups, the columns of a matrix, and the magnitudes of their largest entries.

    The last bits of a magnitude give way to the place, so that one maximum finds both; entries that differ in these bits alone
    count as equal.
    """
    keys = spare.view(np.int32).reshape(-1, count)
    size = len(keys)
    np.bitwise_and(rotated.view(np.int32).reshape(keys.shape), np.int32(0x7FFFFFFF & -size), out=keys)
    keys |= np.arange(size, dtype=np.int32)[:, None]
    place: NDArray[np.int64] = (np.maximum.reduce(keys, axis=0) & np.int32(size - 1)).astype(np.int64)
    largest: Vector = rotated.take(place * count + np.arange(count))
    symbols = place.astype(np.uint16)
    symbols <<= 1
    symbols |= np.signbit(largest)
    return symbols, np.abs(largest, out=largest)
