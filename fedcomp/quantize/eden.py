"""Few bits an entry after a random rotation: entries then look as if drawn from N(0, 1), unless a few of them dominated."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, Vector, check_choice, check_range
from fedcomp.quantize.chunk_norm import halved_sum, largest_scale, normalize
from fedcomp.quantize.error_bound import Contracting, ErrorBound, Unbiased
from fedcomp.quantize.sparsifiers import read_entries
from fedcomp.quantized import (
    MAX_BITS,
    MAX_CHUNK,
    MIN_CHUNK,
    Rotated,
    Rotation,
    aligned_buffer,
    centroids,
    dequantize,
    half_bits,
    power_of_two_parts,
    rotated_count,
    rotated_indices,
    transform,
    wide_blocks,
)

WORST_VARIANCE = 2.92
"""The variance at one bit an entry, for any length; 0.571 for long vectors, less with more bits.  DRIVE, section 4."""


@dataclass(frozen=True, slots=True)
class Eden:
    """Rotate each chunk at random, keep `bits` an entry, and one scale.

    One bit: Vargaftik et al., "DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021.  Other bits: Vargaftik et al.,
    "EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML 2022, section 4;
    section 5 for less than one bit and for fractions.

    For a rotated chunk r of the entries x and its levels c, `scale` is "unbiased", |x|^2 / <c, r>, or "minimal",
    <c, r> / |c|^2.  The latter has the least squared error, for use with error feedback.
    The unbiased scale is exactly unbiased for a uniformly random rotation, which `Rotation` approximates.  A bias remains, at
    any length, where a few entries hold most of the norm of their chunk: random signs and a Hadamard matrix give them the same
    few magnitudes for every seed.  With one such entry and one bit, all signs are those of this entry, and the others are lost.
    A bias also remains in vectors of fewer than about 20 entries, which have few rotations.
    """

    bits: float
    scale: str = "unbiased"

    def __post_init__(self) -> None:
        check_range("bits", self.bits, above=0, most=MAX_BITS, what="the bits sent of an entry")
        check_choice("scale", self.scale, ("unbiased", "minimal"))

    def quantize(self, value: CompensatedUpdate, /) -> Rotated:
        """Return levels and scales.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        bits = max(float(np.float32(self.bits)), 2.0**-126)
        seed, k = value.context.seed % 2**64, rotated_count(bits, value.n)
        rotation, indices = Rotation(seed, k), rotated_indices(seed, value.n, k) if bits < 1 else None
        levels, scales = np.empty(rotation.places, np.uint8), np.empty(rotation.num_chunks, np.float32)
        near, far = (aligned_buffer(rotation.block_size, np.float32) for _ in range(2))
        larger = value.n / k if self.scale == "unbiased" else 1.0
        selected = value if indices is None else CompensatedUpdate(read_entries(value, indices))
        chunk = 0
        blocks = rotation.rotated(selected.blocks(MAX_CHUNK), near)
        for places, (_, wide) in zip(blocks, wide_blocks(seed, bits, rotation), strict=True):
            for part in power_of_two_parts(places.stop - places.start):
                picked, found = None if wide is None else wide[part], levels[places][part]
                scales[chunk] = self._quantize(near[part], far[part], bits, picked, larger, found)
                chunk += 1
        return Rotated(value.n, seed, bits, scales, levels, indices)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the variance w, or for the scale "minimal" the factor w / (1 + w).

        Below one bit, w includes the entries that are left out.  The rotation of a few entries is not close to a uniformly
        random one: then the scale "unbiased" has no bound.  Where a few entries dominate a longer vector, the error keeps the
        variance, but the mean is not the vector.
        """
        variance = (1 + WORST_VARIANCE) / min(1.0, self.bits) - 1
        if self.scale == "minimal":
            return Contracting(variance / (1 + variance))
        return Unbiased(variance) if rotated_count(self.bits, n) >= MIN_CHUNK else None

    def contracting(self) -> "Eden":
        """Return the quantizer with the scale of least error."""
        return replace(self, scale="minimal")

    def _quantize(
        self,
        entries: Vector,
        spare: Vector,
        bits: float,
        wide: NDArray[np.bool_] | None,
        larger: float,
        out: NDArray[np.uint8],
    ) -> float:
        """Write the levels of a chunk into `out`; return its scale.  `entries` and `spare` are overwritten."""
        energy, exponent, peak = normalize(entries, spare)
        product, square = _levels(*transform(entries, spare), energy, bits, wide, out)
        if not product > 0:
            return 0.0
        scale = energy / product if self.scale == "unbiased" else product / (out.size * square)
        scale *= math.ldexp(larger, half_bits(out.size) + exponent)
        return min(scale, largest_scale(peak))


def _levels(
    rotated: Vector, spare: Vector, energy: float, bits: float, wide: NDArray[np.bool_] | None, out: NDArray[np.uint8]
) -> tuple[float, float]:
    """Write the levels c of the rotated chunk r into `out`; return <c, r> and |c|^2.  Both buffers are overwritten.

    The entries of r have the variance |x|^2, since the Hadamard matrix is not normalised.
    """
    if bits <= 1:
        np.greater(rotated, 0, out=out.view(np.bool_))
        return halved_sum(np.abs(rotated, out=spare)), float(rotated.size)
    deviation = math.sqrt(energy)
    rotated *= np.float32(1 / deviation if deviation else 0)
    _nearest(rotated, math.floor(bits), out)
    if wide is not None:
        wider = np.empty_like(out)
        _nearest(rotated, math.floor(bits) + 1, wider)
        out += (wider - out) * wide.view(np.uint8)  # 50 times as fast as a masked copy
    dequantize(out, bits, wide, spare)
    product = halved_sum(np.multiply(rotated, spare, out=rotated)) * deviation
    return product, halved_sum(np.multiply(spare, spare, out=spare))


def _nearest(entries: Vector, bits: int, out: NDArray[np.uint8]) -> None:
    """Write the number of the nearest centroid of each entry into `out`."""
    levels = centroids(bits)
    above = np.empty(entries.size, np.bool_)
    out[...] = 0
    for bound in (levels[:-1] + levels[1:]) / 2:
        out += np.greater(entries, bound, out=above).view(np.uint8)
