"""Levels of a randomly rotated vector: sender and receiver draw the rotation from one seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import RandomStream, Vector, block_slices
from fedcomp.quantized.hadamard import aligned_buffer, transform, transform_signs
from fedcomp.quantized.rotation import SUBSET, WIDE, Rotation, power_of_two_parts
from fedcomp.quantized.vectors import Indices, Sparse, add_blocks, collect

MAX_BITS = 4
CENTROIDS = (
    (0.7978846,),
    (0.4527800, 1.5104176),
    (0.2450942, 0.7560053, 1.3439093, 2.1519457),
    (0.1283950, 0.3880483, 0.6567591, 0.9423405, 1.2562312, 1.6180464, 2.0690172, 2.7325896),
)
"""The positive levels of 1 to 4 bits that quantize N(0, 1) with the least squared error.

Lloyd, 1957, published in IEEE Trans. Inf. Theory 28(2), 1982; Max, IRE Trans. Inf. Theory 6(1), 1960, table I.
"""
MAX_SCALE = np.float32(2.0**117)
"""Scales are below this.  An entry that is rotated back is at most `MAX_GAIN` scales, and so within float32."""
MAX_GAIN = 2**10
WIDTH_GROUP = 8
TILE = 1 << 13
"""Entries looked up at a time: `take` converts each index to eight bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Rotated:
    """A vector of `n` entries, rotated by `seed` < 2^64: `levels` uint8, one per place, and `scales` float32, one per chunk.

    `Rotation` says which entry is in which place.  A chunk of d places is H c 2^-h times its scale: c are its levels, H is the
    Hadamard matrix, and h = `half_bits(d)`.  `bits` is a float32.

    If `bits` is below 1, only k = `rotated_count(bits, n)` entries are rotated.  They are at `indices`, which are
    ``rotated_indices(seed, n, k)``, and the others are zero.  If `bits` is above 1 and no whole number, some levels have one
    bit more than others.
    """

    n: int
    seed: int
    bits: float
    scales: Vector
    levels: NDArray[np.uint8]
    indices: Indices | None = None

    @property
    def rotation(self) -> Rotation:
        """The places of the rotated entries."""
        return Rotation(self.seed, self.n if self.indices is None else self.indices.size)

    def expected_noise(self) -> tuple[float, float]:
        """Return the expected squared norm of what was encoded, and the expected squared error, with the unbiased scale.

        Rotated entries are Gaussian.  Of centroids with the mean square q, the unbiased ones have the error 1 / q - 1 over the
        squared norm, and themselves 1 / q times this norm.
        """
        sizes = self.rotation.chunk_sizes()
        powers = np.array([size / 4.0 ** half_bits(size) for size in sizes.tolist()])
        sent = float(self.scales.astype(np.float64) ** 2 @ (sizes * powers))
        if self.bits > 1:  # with one bit, levels are signs
            sent *= mean_square(self.bits)
        encoded = sent * mean_square(self.bits) * self.rotation.n / self.n
        return encoded, sent - encoded

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        sparse = self.sparse()
        return self._rotated_entries() if sparse is None else sparse.dense()

    def sparse(self) -> Sparse | None:
        """Return the entries that were rotated; None if all entries were."""
        return None if self.indices is None else Sparse(self.n, self.indices, self._rotated_entries())

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, block by block."""
        sparse = self.sparse()
        if sparse is not None:
            sparse.add_to(vector, weight)
            return
        add_blocks(self.rotation.restored(self._places()), vector, weight)

    def _rotated_entries(self) -> Vector:
        return collect(self.rotation.restored(self._places()), np.empty(self.rotation.n, np.float32))

    def _places(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (places, their values) of each block."""
        rotation = self.rotation
        values, near, far = (aligned_buffer(rotation.block_size, np.float32) for _ in range(3))
        chunk = 0
        for places, wide in wide_blocks(self.seed, self.bits, rotation):
            levels = self.levels[places]
            for part in power_of_two_parts(levels.size):
                factor = 0.5 ** half_bits(part.stop - part.start)
                if self.bits <= 1:
                    signs = values[part].view(np.int16)
                    np.multiply(levels[part], 2, out=signs[: signs.size // 2])
                    signs[: signs.size // 2] -= 1
                    restored = transform_signs(signs, near[part], far[part], factor)
                else:
                    dequantize(levels[part], self.bits, None if wide is None else wide[part], near[part], factor)
                    restored, _ = transform(near[part], far[part])
                np.multiply(restored, self.scales[chunk], out=values[part])
                chunk += 1
            yield places, values[: levels.size]


def rotated_count(bits: float, n: int) -> int:
    """Return how many of `n` entries are rotated: all, or below one bit max(1, round(bits n)), where halves round up."""
    return n if bits >= 1 else max(1, int(bits * n + 0.5))


def rotated_indices(seed: int, n: int, k: int) -> Indices:
    """Return the `k` indices below `n` that belong to `seed`, ascending."""
    return RandomStream(seed, SUBSET).subset(n, k)


def wide_blocks(seed: int, bits: float, rotation: Rotation) -> Iterator[tuple[slice, NDArray[np.bool_] | None]]:
    """Yield (places, mask) of each block: the mask says which places have ceil(bits) bits, while the others have floor(bits).

    Eight neighbours are a group of the same number of bits.  The mask is None if all places have the same number.
    """
    stream, threshold = RandomStream(seed, WIDE), np.uint16(int(bits % 1 * 2**16) if bits > 1 else 0)
    for places in rotation.blocks():
        size = places.stop - places.start
        groups = -(-size // WIDTH_GROUP)
        halves = stream.words(-(-groups // 2)).astype("<u4", copy=False).view("<u2") if threshold else None
        yield places, None if halves is None else (halves[:groups] < threshold).repeat(WIDTH_GROUP)[:size]


def dequantize(
    levels: NDArray[np.uint8], bits: float, wide: NDArray[np.bool_] | None, out: Vector, factor: float = 1.0
) -> None:
    """Write the centroid of each level, of more than one bit, times `factor` into `out`."""
    narrow = int(bits)
    table = centroids(narrow) if wide is None else np.concatenate((centroids(narrow), centroids(narrow + 1)))
    table = table * np.float32(factor)
    for part in block_slices(levels.size, TILE):
        index = levels[part] if wide is None else levels[part] + (wide[part].view(np.uint8) << np.uint8(narrow))
        table.take(index, out=out[part], mode="clip")


@lru_cache(maxsize=MAX_BITS)
def centroids(bits: int) -> Vector:
    """Return the 2^bits levels, ascending, float32; read-only."""
    positive = np.array(CENTROIDS[bits - 1], np.float32)
    levels = np.concatenate((-positive[::-1], positive))
    levels.flags.writeable = False
    return levels


def mean_square(bits: float) -> float:
    """Return the mean square of the levels of entries from N(0, 1); between whole `bits`, some entries have one bit more."""
    narrow = max(1, int(bits))
    return float(np.interp(bits, (narrow, narrow + 1), (_mean_square(narrow), _mean_square(min(narrow + 1, MAX_BITS)))))


@lru_cache(maxsize=MAX_BITS)
def _mean_square(bits: int) -> float:
    levels = centroids(bits).astype(np.float64)
    borders = [-math.inf, *((levels[1:] + levels[:-1]) / 2).tolist(), math.inf]
    below = np.array([(1 + math.erf(border / math.sqrt(2))) / 2 for border in borders])
    return float(np.diff(below) @ levels**2)


def half_bits(length: int) -> int:
    """Return h, with which 2^-h H is orthonormal, or sqrt(2) times orthonormal if `length` is no power of four."""
    return (length.bit_length() - 1) // 2
