"""Chunks of a randomly rotated vector, of which each group of entries keeps the place and the sign of its largest one."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized.hadamard import aligned_buffer, places_in_columns, spread, spread_bits, transform_columns
from fedcomp.quantized.rotated import half_bits
from fedcomp.quantized.rotation import Rotation
from fedcomp.quantized.vectors import AllEntries

MIN_GROUP = 2
SHARES = 16
"""A rate divides a chunk into this many parts."""
MIN_LENGTH, MAX_LENGTH = 1 << 10, 1 << 15
"""Places of whole chunks.  Smaller ones would take many scales; in larger ones, sums of the rotation back would leave int16."""
MAX_RATE = SHARES * 14
"""The rate at which the largest chunk is one group."""
GroupSizes = tuple[tuple[int, int], tuple[int, int]]
"""(Entries of a group, number of groups) of the smaller groups of a chunk, and of the larger ones."""


@dataclass(frozen=True, slots=True, eq=False)
class CrossPolytope(AllEntries):
    """A rotated vector: the nearest vertex of a cross-polytope for each group of entries.

    `rotation`, in chunks of `MIN_LENGTH` to `MAX_LENGTH` entries, says which entry is in which place.  A chunk is S D H c 2^-h
    times its scale: H is the Hadamard matrix, D has random signs, S is `spread`, and h makes S H 2^-h orthonormal, or sqrt(2)
    times orthonormal.  Of each group, c has one entry that is not zero: `symbols` uint16 are twice its place in the group, plus
    1 if it is -1 and not +1.  They are in the order of the groups' sizes, then of the chunks, then of the groups.

    `rates` uint8 and `scales` float32 have one number per chunk.  A rate says how large the groups are (`group_sizes`).
    Scales have the precision of bfloat16.  A chunk of scale 0 has no symbols.
    """

    rotation: Rotation
    rates: NDArray[np.uint8]
    scales: Vector
    symbols: NDArray[np.uint16]

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return self.rotation.n

    def expected_noise(self) -> tuple[float, float]:
        """Return the expected squared norm of what was encoded, and the expected squared error, with the unbiased scale.

        A chunk has the error `gaussian_error` of its rate, over its squared norm, and what is sent has 1 plus that times the
        squared norm of what was encoded.
        """
        sent = self.scales != 0
        sizes, scales = self.rotation.chunk_sizes()[sent], self.scales[sent].astype(np.float64)
        kinds = zip(sizes.tolist(), self.rates[sent].tolist(), strict=True)
        if not sizes.size:
            return 0.0, 0.0
        errors, kept = np.array([gaussian_error(d, rate) for d, rate in kinds]).T
        norms = scales**2 * kept / (1 + errors)
        return float(norms.sum()), float(norms @ errors)

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order."""
        return self.rotation.restored(self._places())

    def _places(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (places, their values) of each block."""
        rotation = self.rotation
        size = rotation.block_size
        values, other = aligned_buffer(size, np.float32), aligned_buffer(size, np.float32)
        near, far = aligned_buffer(size, np.int16), aligned_buffer(size, np.int16)
        signs = rotation.spread_signs()
        totals = count_symbols(rotation, self.rates, self.scales)
        begins = dict(zip(totals, accumulate(totals.values(), initial=0)))  # noqa: B905 - the last sum is the end
        chunk = 0
        for block in rotation.blocks():
            for part, count in rotation.batches(block):
                chunks, size = slice(chunk, chunk + count), part.stop - part.start
                vertices, spare = near[:size], far[:size]
                vertices.fill(0)
                self._scatter(chunks, vertices, begins)
                restored, _ = transform_columns(vertices, spare, count)
                d = size // count
                rows = np.multiply(restored.reshape(count, d), signs[:d], out=other[:size].reshape(count, d))
                rows *= np.float32(0.5 ** half_bits(d << spread_bits(d)))
                found, _ = spread(other[:size], values[part], d)
                np.multiply(found.reshape(count, d), self.scales[chunks, None], out=values[part].reshape(count, d))
                chunk += count
            yield block, values[: block.stop - block.start]

    def _scatter(self, chunks: slice, vertices: NDArray[np.int16], begins: dict[int, int]) -> None:
        """Write the vertices of some chunks where `transform_columns` needs them; move on in the symbols of each size."""
        count = chunks.stop - chunks.start
        d = vertices.size // count
        kinds: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # column, first row, groups
        rates, scales = self.rates[chunks].tolist(), self.scales[chunks].tolist()
        for column, (rate, scale) in enumerate(zip(rates, scales, strict=True)):
            first = 0
            for size, groups in group_sizes(d, rate) if scale else ():
                if groups:
                    kinds[size].append((column, first, groups))
                    first += size * groups
        for size, found in kinds.items():
            columns, firsts, groups = np.array(found).T
            total = int(groups.sum())
            symbols = self.symbols[begins[size] : begins[size] + total]
            begins[size] += total
            rows = (symbols >> 1) * groups.repeat(groups)
            rows += np.arange(total)
            rows += (firsts - groups.cumsum() + groups).repeat(groups)
            places = places_in_columns(rows, columns.repeat(groups), d, count)
            vertices[places] = 1 - 2 * (symbols & 1).view(np.int16)


@lru_cache(maxsize=1 << 12)
def group_sizes(d: int, rate: int) -> GroupSizes:
    """Return (entries of a group, number of groups) of both kinds of groups of a chunk of `d` places.

    The first 16 - (`rate` mod 16) sixteenths of the chunk have groups of 2 * 2^(`rate` // 16) entries, and the others have
    groups twice as large.  No group is larger than the chunk, and no group is cut.
    """
    small = min(MIN_GROUP << rate // SHARES, d)
    large = min(2 * small, d)
    border = d * (SHARES - rate % SHARES) // SHARES
    if rate % SHARES:
        border = border // large * large
    return (small, border // small), (large, (d - border) // large)


@lru_cache(maxsize=1 << 12)
def gaussian_error(d: int, rate: int) -> tuple[float, float]:
    """Return the squared error of a chunk of Gaussian entries, over its squared norm, and |S D H c 2^-h|^2.

    With k groups, of whose largest magnitudes the sum is s on average, the error is d k / s^2 - 1.
    """
    both = group_sizes(d, rate)
    kept = sum(groups for _, groups in both)
    total = sum(groups * mean_largest(size) for size, groups in both)
    more = spread_bits(d)
    return d * kept / total**2 - 1, kept * (d << more) / 4.0 ** half_bits(d << more)


@lru_cache(maxsize=16)
def mean_largest(m: int) -> float:
    """Return the mean of the largest magnitude of `m` numbers from N(0, 1): the integral of 1 - P(|x| < t)^m over t."""
    steps = np.linspace(0, 8, 2001)
    below = np.array([math.erf(step / math.sqrt(2)) for step in steps.tolist()])
    return float(np.trapezoid(1 - below**m, steps))


def symbol_bits(size: int) -> int:
    """Return the bits of the symbol of a group of `size` entries."""
    return size.bit_length()


@lru_cache(maxsize=64)
def chunk_bits(d: int) -> NDArray[np.int64]:
    """Return the bits of all symbols of a chunk of `d` places at each rate."""
    kinds = (group_sizes(d, rate) for rate in range(MAX_RATE + 1))
    return np.array([sum(symbol_bits(size) * count for size, count in both) for both in kinds])


def count_symbols(rotation: Rotation, rates: NDArray[np.uint8], scales: Vector) -> dict[int, int]:
    """Return the number of symbols of each size of groups, in ascending order of the sizes."""
    counts: Counter[int] = Counter()
    sent = scales != 0
    chunks = zip(rotation.chunk_sizes()[sent].tolist(), rates[sent].tolist(), strict=True)
    for (d, rate), number in Counter(chunks).items():
        for size, groups in group_sizes(d, rate):
            counts[size] += groups * number
    return {size: counts[size] for size in sorted(counts) if counts[size]}
