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
TRANSPOSE_COLUMNS = 32
"""Columns that a transposition copies at a time: they share cache lines."""


def transform(entries: Vector, spare: Vector) -> tuple[Vector, Vector]:
    """Return the Hadamard matrix times `entries`, float32 (d,), and the other buffer.  Both arguments are overwritten.

    d is a power of two.  The matrix is Sylvester's and not normalised: H[i, j] is -1 to the number of bits that i and j have
    in common.  So H is symmetric, and H H = d.
    """
    entries, spare = transform_transposed(entries, spare)
    bits = entries.size.bit_length() - 1
    _transpose(entries, spare, bits - bits // 2)
    return spare, entries


def transform_transposed(entries: Vector, spare: Vector) -> tuple[Vector, Vector]:
    """Return what `transform` does, but as the transpose of a matrix of 2^(bits // 2) columns, for d = 2^bits entries."""
    bits = entries.size.bit_length() - 1
    entries, spare = _butterflies(entries, spare, bits - bits // 2)
    _transpose(entries, spare, bits // 2)
    return _butterflies(spare, entries, bits // 2)


def transform_back(entries: NDArray[Any], spare: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the Hadamard matrix times `entries`, which are transposed as those of `transform_transposed`.

    Both arguments are overwritten.  They may be integers: no sum is larger than the sum of all magnitudes.
    """
    bits = entries.size.bit_length() - 1
    entries, spare = _butterflies(entries, spare, bits // 2)
    _transpose(entries, spare, bits - bits // 2)
    return _butterflies(spare, entries, bits - bits // 2)


def transform_signs(signs: NDArray[np.int16], out: Vector, spare: Vector, factor: float) -> Vector:
    """Return `factor`, a power of two, times the Hadamard matrix times ±1, float32 (d,), in `out` or in `spare`.

    `signs`, int16 (2 d,), holds the ±1 in its first half.  All buffers are overwritten.  Sums are int16, which halves the
    memory traffic, as long as they cannot exceed 2^14.
    """
    size = signs.size // 2
    bits = size.bit_length() - 1
    short = min(bits // 2, max(0, MAX_SHORT_BITS - (bits - bits // 2)))
    sums, other = _butterflies(signs[:size], signs[size:], bits - bits // 2)
    _transpose(sums, other, bits // 2)
    sums, _ = _butterflies(other, sums, short)
    np.multiply(sums, np.float32(factor), out=out)
    out, spare = _butterflies(out, spare, bits // 2 - short, size >> short)
    _transpose(out, spare, bits - bits // 2)
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


def _transpose(entries: NDArray[Any], out: NDArray[Any], bits: int) -> None:
    """Write the transpose of `entries`, a matrix of 2^`bits` columns, into `out`."""
    columns = 1 << bits
    matrix, transposed = entries.reshape(-1, columns), out.reshape(columns, -1)
    for row in range(0, len(matrix), TRANSPOSE_COLUMNS):
        part = slice(row, row + TRANSPOSE_COLUMNS)
        transposed[:, part] = matrix[part].T
