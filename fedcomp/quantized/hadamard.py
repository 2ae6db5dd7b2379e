"""The Walsh-Hadamard transform of a vector, by additions and subtractions of two entries only.

Every output bit is the same on every machine, because no sum is left to a library that may add in another order.

Butterflies add and subtract entries that are half the vector apart, then a quarter, and so on.  numpy is fast while these
entries are far apart.  So the vector is transposed as a matrix after half of the butterflies, which moves near entries far
apart, and transposed back at the end.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector

CACHE_LINE = 64
MAX_SHORT_BITS = 14
"""Butterflies of ±1 whose sums fit int16."""
BUFFER_SIZE = 256
"""Entries of numpy's buffers during butterflies: with its usual 8192, numpy would copy shorter runs into the buffers."""
TRANSPOSED = 1 << 13
"""Entries that a transposition copies at a time: their cache lines stay in the cache."""


def transform(entries: Vector, spare: Vector) -> tuple[Vector, Vector]:
    """Return the Hadamard matrix times `entries`, float32 (d,), and the other buffer.  Both arguments are overwritten.

    d is a power of two.  The matrix is Sylvester's and not normalised: H[i, j] is -1 to the number of bits that i and j have
    in common.  So H is symmetric, and H H = d.
    """
    bits = entries.size.bit_length() - 1
    entries, spare = _butterflies(entries, spare, bits - bits // 2)
    _transpose(entries, spare, 1 << bits // 2)
    entries, spare = _butterflies(spare, entries, bits // 2)
    _transpose(entries, spare, 1 << bits - bits // 2)
    return spare, entries


def transform_rows(entries: Vector, spare: Vector, count: int) -> tuple[Vector, Vector]:
    """Return the Hadamard matrix times each of `count` rows, as the columns of a matrix (d, `count`), and the other buffer."""
    bits = (entries.size // count).bit_length() - 1
    _transpose(entries, spare, 1 << bits // 2)
    entries, spare = _butterflies(spare, entries, bits // 2)
    _transpose(entries, spare, 1 << bits - bits // 2)
    return _butterflies(spare, entries, bits - bits // 2)


def spread(entries: Vector, spare: Vector, d: int) -> tuple[Vector, Vector]:
    """Return each row of d entries, times the Hadamard matrix of its `spread_bits`, and the other buffer.

    Followed by random signs and the whole matrix, it turns one large entry into a sum of 64 random signs in each place.  The
    whole matrix alone turns it into equal magnitudes, beside which the other entries decide which place is the largest.
    """
    return _butterflies(entries, spare, spread_bits(d), d)


def spread_bits(d: int) -> int:
    """Return the number of bits of a place that `spread` transforms: the higher half of them, at most 6."""
    return min(6, d.bit_length() // 2)


def places_in_columns(places: NDArray[np.int64], columns: NDArray[np.int64], d: int, count: int) -> NDArray[np.int64]:
    """Return where `transform_columns` finds some places, of d, of some of `count` columns."""
    bits = d.bit_length() - 1
    places = places.astype(np.int64, copy=False)
    low = places & (1 << bits // 2) - 1
    return ((low * count + columns) << bits - bits // 2) + (places >> bits // 2)


def transform_columns(entries: NDArray[Any], spare: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the Hadamard matrix times each of `count` columns, as the rows of a matrix (`count`, d), and the other buffer.

    The entries are where `places_in_columns` says.  They may be integers: no sum is larger than the sum of all magnitudes of a
    column.
    """
    bits = (entries.size // count).bit_length() - 1
    entries, spare = _butterflies(entries, spare, bits // 2)
    _transpose(entries, spare, 1 << bits - bits // 2)
    entries, spare = _butterflies(spare, entries, bits - bits // 2)
    _transpose(entries, spare, count)
    return spare, entries


def transform_signs(signs: NDArray[np.int16], out: Vector, spare: Vector, factor: float) -> Vector:
    """Return `factor`, a power of two, times the Hadamard matrix times ±1, float32 (d,), in `out` or in `spare`.

    `signs`, int16 (2 d,), holds the ±1 in its first half.  All buffers are overwritten.  Sums are int16, which halves the
    memory traffic, as long as they cannot exceed 2^14.
    """
    size = signs.size // 2
    bits = size.bit_length() - 1
    short = min(bits // 2, max(0, MAX_SHORT_BITS - (bits - bits // 2)))
    sums, other = _butterflies(signs[:size], signs[size:], bits - bits // 2)
    _transpose(sums, other, 1 << bits // 2)
    sums, _ = _butterflies(other, sums, short)
    np.multiply(sums, np.float32(factor), out=out)
    out, spare = _butterflies(out, spare, bits // 2 - short, size >> short)
    _transpose(out, spare, 1 << bits - bits // 2)
    return spare


def aligned_buffer(size: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return memory for `size` numbers that starts at a cache line: butterflies across lines take twice as long."""
    width = np.dtype(dtype).itemsize
    octets = np.empty(size * width + CACHE_LINE, np.uint8)
    start = -octets.ctypes.data % CACHE_LINE
    return octets[start : start + size * width].view(dtype)


def _butterflies(
    entries: NDArray[Any], spare: NDArray[Any], count: int, stride: int = 0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Run `count` butterfly passes, the first over pairs `stride` / 2 apart (0: half of all entries).

    Return the buffer with the result, and the spare buffer.
    """
    stride = stride or entries.size
    with np.errstate():  # restores numpy's buffer size at its end
        np.setbufsize(BUFFER_SIZE)
        for _ in range(count):
            stride //= 2
            pairs, sums = entries.reshape(-1, 2, stride), spare.reshape(-1, 2, stride)
            np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
            np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
            entries, spare = spare, entries
    return entries, spare


def _transpose(entries: NDArray[Any], out: NDArray[Any], columns: int) -> None:
    """Write the transpose of `entries`, a matrix of `columns` columns, into `out`; slow if there are few rows."""
    matrix, transposed = entries.reshape(-1, columns), out.reshape(columns, -1)
    rows = max(1, TRANSPOSED // columns)
    for row in range(0, len(matrix), rows):
        part = slice(row, row + rows)
        transposed[:, part] = matrix[part].T
