"""A randomly rotated vector of which each group of entries keeps the place and the sign of its largest one."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized.hadamard import aligned_buffer, transform_back
from fedcomp.quantized.rotated import half_bits
from fedcomp.quantized.rotation import Rotation, power_of_two_parts
from fedcomp.quantized.vectors import AllEntries

MIN_GROUP, MAX_GROUP = 4, 1 << 15
"""Entries of a group.  With four or more, all sums of the rotation back fit int16."""
SHARES = 16
"""A rate divides a chunk into this many parts."""
MAX_RATE = SHARES * 13
"""The rate at which all groups have `MAX_GROUP` entries."""


@dataclass(frozen=True, slots=True, eq=False)
class CrossPolytope(AllEntries):
    """A rotated vector: the nearest vertex of a cross-polytope for each group of entries.

    `rotation` says which entry is in which place.  A chunk is H c 2^-h times its scale, as in `Rotated`.  Of each group, c has
    one entry that is not zero: `symbols` uint16 are twice its place in the group, plus 1 if it is -1 and not +1.

    `rates` are uint8, one per block of `Rotation.blocks`, and say how large the groups are (`group_sizes`).  `scales` are
    float32, one per chunk.  A chunk of scale 0 has no symbols.
    """

    rotation: Rotation
    rates: NDArray[np.uint8]
    scales: Vector
    symbols: NDArray[np.uint16]

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return self.rotation.n

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order."""
        return self.rotation.restored(self._places())

    def _places(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (places, their values) of each block."""
        rotation = self.rotation
        values = aligned_buffer(rotation.block_size, np.float32)
        near, far = (aligned_buffer(rotation.block_size, np.int16) for _ in range(2))
        scales, done = iter(self.scales.tolist()), 0
        for places, rate in zip(rotation.blocks(), self.rates.tolist(), strict=True):
            for part in power_of_two_parts(places.stop - places.start):
                scale, d = next(scales), part.stop - part.start
                if not scale:
                    values[part] = 0
                    continue
                chunk, begin = near[:d], 0
                chunk.fill(0)
                for size, count in group_sizes(d, rate):
                    symbols = self.symbols[done : done + count]
                    kept = (symbols >> 1) * np.int64(count)  # a group is a column of a matrix
                    kept += np.arange(begin, begin + count)
                    chunk[kept] = 1 - 2 * (symbols & 1).view(np.int16)
                    begin, done = begin + size * count, done + count
                restored, _ = transform_back(chunk, far[:d])
                np.multiply(restored, np.float32(0.5 ** half_bits(d)), out=values[part])
                values[part] *= np.float32(scale)
            yield places, values[: places.stop - places.start]


def group_sizes(d: int, rate: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (entries of a group, number of groups) of both kinds of groups of a chunk of `d` places.

    The first 16 - (`rate` mod 16) sixteenths of the chunk have groups of 4 * 2^(`rate` // 16) entries, and the others have
    groups twice as large.  No group is larger than the chunk, and no group is cut.
    """
    small = min(MIN_GROUP << rate // SHARES, d)
    large = min(2 * small, d)
    border = d * (SHARES - rate % SHARES) // SHARES
    if rate % SHARES:
        border = border // large * large
    return (small, border // small), (large, (d - border) // large)


def count_symbols(rotation: Rotation, rates: NDArray[np.uint8], scales: Vector) -> Iterator[tuple[int, int]]:
    """Yield (bits of a symbol, number of symbols) of each kind of groups, in the order of the symbols."""
    given = iter(scales.tolist())
    for places, rate in zip(rotation.blocks(), rates.tolist(), strict=True):
        for part in power_of_two_parts(places.stop - places.start):
            if next(given):
                for size, count in group_sizes(part.stop - part.start, rate):
                    yield size.bit_length(), count


@lru_cache(maxsize=1)
def rate_bits() -> NDArray[np.float64]:
    """Return the bits an entry of each rate in a long chunk, descending; read-only."""
    kinds = (group_sizes(1 << 30, rate) for rate in range(MAX_RATE + 1))
    bits = np.array([sum(size.bit_length() * count for size, count in both) / 2**30 for both in kinds])
    bits.flags.writeable = False
    return bits
