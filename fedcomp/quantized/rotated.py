"""Entries of a randomly rotated vector, each as one of a few levels; and what sender and receiver draw from one seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import RandomStream, Vector
from fedcomp.quantized.hadamard import ROTATION_BLOCK, aligned_buffer, power_of_two_parts, transform
from fedcomp.quantized.vectors import Indices, Sparse

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
FLIPS, WIDE, SUBSET = range(3)
"""The streams of random numbers that belong to a seed."""
MAX_SCALE = np.float32(2.0**119)
"""Scales lie below it.  An entry that is rotated back is less than `STEEPEST` scales, and so within float32."""
MAX_GAIN = 2**8
WIDTH_GROUP = 8
TILE = 1 << 13
"""Entries looked up at a time; and those that a row of scales is repeated to: products of short rows cost much more."""
PLUS_MINUS = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Rotated:
    """A vector of `n` entries, rotated by what `seed` < 2^64 tells: `levels` uint8 (k,) and `scales` float32, one a chunk.

    Random signs D and the Hadamard matrix H (`hadamard.py`) rotate chunk by chunk; a chunk is D H c times its scale and a
    power of two, c its levels.  `bits` is a float32.  Below 1, only k = `kept(bits, n)` entries are rotated, those at
    `indices`, which are ``subset(seed, n, k)``, and the others are zero; above 1, where it is no whole number, some entries
    have a bit more than others.
    """

    n: int
    seed: int
    bits: float
    scales: Vector
    levels: NDArray[np.uint8]
    indices: Indices | None = None

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        if self.indices is None:
            return self._gathered()
        whole = np.zeros(self.n, np.float32)
        for start, values in self._blocks():
            whole[self.indices[start : start + values.size]] = values
        return whole

    def sparse(self) -> Sparse | None:
        """Return the entries that were rotated; None where all were."""
        return None if self.indices is None else Sparse(self.n, self.indices, self._gathered())

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, block by block."""
        sparse = self.sparse()
        if sparse is not None:
            sparse.add_to(vector, weight)
            return
        for start, values in self._blocks():
            part = vector[start : start + values.size]
            part += values if weight == 1.0 else np.multiply(values, weight, dtype=vector.dtype)

    def _gathered(self) -> Vector:
        whole = np.empty(self.levels.size, np.float32)
        for start, values in self._blocks():
            whole[start : start + values.size] = values
        return whole

    def _blocks(self) -> Iterator[tuple[int, Vector]]:
        """Yield (start, values) of the entries rotated back; they are to be read before the next."""
        size = min(ROTATION_BLOCK, self.levels.size)
        values, flips = aligned_buffer(size, np.float32), Flips(self.seed, size)
        # Sums of as many ±1 as a chunk has fit 16 bits, which is half the memory to pass through.
        kind = np.int16 if self.bits <= 1 else np.float32
        near, far = aligned_buffer(size, kind), aligned_buffer(size, kind)
        chunk = 0
        for start, groups in wide_blocks(self.seed, self.bits, self.levels.size):
            levels = self.levels[start : start + ROTATION_BLOCK]
            wide = None if groups is None else groups.repeat(WIDTH_GROUP)
            signs = flips.draw(levels.size)
            for part, length in power_of_two_parts(levels.size):
                entries = levels[part]
                chunks = slice(chunk, chunk + entries.size // length)
                chunk = chunks.stop
                dequantize(entries, self.bits, None if wide is None else wide[part], near[part])
                spread, _ = transform(near[part], far[part], length)
                np.multiply(spread, np.float32(0.5 ** half_bits(length)), out=values[part])
                times_columns(values[part], self.scales[chunks])
            values[: levels.size] *= signs
            yield start, values[: levels.size]


class Flips:
    """Random signs of the entries of a vector, in order: +1 and -1, float32."""

    def __init__(self, seed: int, size: int) -> None:
        """Begin with the first entry; at most `size` are drawn at a time."""
        self._draws = RandomStream(seed, FLIPS)
        self._signs: Vector = aligned_buffer(-(-size // 8) * 8, np.float32)

    def draw(self, count: int) -> Vector:
        """Return the signs of the next `count` entries, to be read before the next ones are drawn."""
        octets = self._draws.words(-(-count // 32)).astype("<u4", copy=False).view(np.uint8)[: -(-count // 8)]
        PLUS_MINUS.take(octets, axis=0, out=self._signs[: 8 * octets.size].reshape(-1, 8), mode="clip")
        return self._signs[:count]


def rotated_count(bits: float, n: int) -> int:
    """Return how many of `n` entries are rotated: all, or for less than a bit each, max(1, round(bits n)), halves up."""
    return n if bits >= 1 else max(1, int(bits * n + 0.5))


def rotated_indices(seed: int, n: int, k: int) -> Indices:
    """Return the `k` indices below `n` that belong to `seed`, ascending."""
    return RandomStream(seed, SUBSET).subset(n, k)


def wide_blocks(seed: int, bits: float, k: int) -> Iterator[tuple[int, NDArray[np.bool_] | None]]:
    """Yield (start, which groups of the block have ceil(bits) bits an entry and not floor(bits)) of `k` entries.

    Eight neighbours are a group: they lie in eight chunks, or in as many as there are.  None: all have the same.
    """
    draws, likely = RandomStream(seed, WIDE), np.uint16(int(bits % 1 * 2**16) if bits > 1 else 0)
    for start in range(0, k, ROTATION_BLOCK):
        groups = -(-min(ROTATION_BLOCK, k - start) // WIDTH_GROUP)
        halves = draws.words(-(-groups // 2)).astype("<u4", copy=False).view("<u2") if likely else None
        yield start, None if halves is None else halves[:groups] < likely


def dequantize(levels: NDArray[np.uint8], bits: float, wide: NDArray[np.bool_] | None, out: NDArray[Any]) -> None:
    """Write the value of each level into `out`: ±1 of one bit or less; else a centroid."""
    if bits <= 1:
        out[...] = levels
        out *= 2
        out -= 1
        return
    narrow = int(bits)
    table = centroids(narrow) if wide is None else np.concatenate((centroids(narrow), centroids(narrow + 1)))
    for start in range(0, levels.size, TILE):  # `take` makes eight bytes of each index
        part = slice(start, start + TILE)
        index = levels[part] if wide is None else levels[part] + (wide[part].view(np.uint8) << np.uint8(narrow))
        table.take(index, out=out[part], mode="clip")


@lru_cache(maxsize=MAX_BITS)
def centroids(bits: int) -> Vector:
    """Return the 2^bits levels, ascending, float32; not to be written."""
    positive = np.array(CENTROIDS[bits - 1], np.float32)
    levels = np.concatenate((-positive[::-1], positive))
    levels.flags.writeable = False
    return levels


def half_bits(length: int) -> int:
    """Return h: H times 2^-h is orthonormal, or sqrt(2) times that where `length` is no power of four."""
    return (length.bit_length() - 1) // 2


def times_columns(values: Vector, factors: Vector) -> None:
    """Multiply the columns of `values`, as many as there are `factors`, in place."""
    row = np.tile(factors, max(1, min(TILE, values.size) // factors.size))
    table = values.reshape(-1, row.size)
    table *= row
