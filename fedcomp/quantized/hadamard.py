"""The Walsh-Hadamard transform of a vector, by additions and subtractions of two entries only.

Every output bit is the same on every machine, because no sum is left to a library that may add in another order.

A butterfly adds and subtracts entries that are half the vector apart, then a quarter, and so on.  numpy is fast while they
are far apart, so the transform does the first half of the butterflies, transposes the vector as a matrix, which makes the
near entries far, does the other half, and transposes back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector

CACHE_LINE = 64
BUFFER_SIZE = 256
"""Entries of numpy's buffers during butterflies: it would copy shorter runs than its usual 8192 into them."""
TRANSPOSE_COLUMNS = 32
"""Columns that a transposition copies at a time: they share cache lines."""


def transform(entries: Vector, spare: Vector) -> tuple[Vector, Vector]:
    """Return the Hadamard matrix times `entries`, float32 (d,), d a power of two, and the other buffer; overwrite both.

    The matrix is Sylvester's and not normalised: H[i, j] is -1 to the number of bits that i and j have in common, so that
    H is symmetric and H H = d.
    """
    bits = entries.size.bit_length() - 1
    entries, spare = _butterflies(entries, spare, bits - bits // 2)
    _transpose(entries, spare, bits // 2)
    return _second_half(spare, entries)


def transform_signs(signs: NDArray[np.int16], out: Vector, spare: Vector, factor: float) -> Vector:
    """Return `factor`, a power of two, times the Hadamard matrix times `signs`, int16 of ±1, in `out` or in `spare`.

    All are overwritten and have d entries, d at most 2^28.  Sums of the first half of the butterflies fit 16 bits, which is
    half the memory to pass through.
    """
    bits = signs.size.bit_length() - 1
    signs, _ = _butterflies(signs, spare.view(np.int16)[: signs.size], bits - bits // 2)
    _transpose(signs, out, bits // 2, factor)
    return _second_half(out, spare)[0]


def aligned_buffer(size: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return room for `size` numbers that begins with a cache line: butterflies across lines take twice as long."""
    width = np.dtype(dtype).itemsize
    octets = np.empty(size * width + CACHE_LINE, np.uint8)
    start = -octets.ctypes.data % CACHE_LINE
    return octets[start : start + size * width].view(dtype)


def _second_half(entries: Vector, spare: Vector) -> tuple[Vector, Vector]:
    """Return the transposed entries after the other butterflies, transposed back, and the other buffer."""
    low = (entries.size.bit_length() - 1) // 2
    entries, spare = _butterflies(entries, spare, low)
    _transpose(entries, spare, entries.size.bit_length() - 1 - low)
    return spare, entries


def _butterflies(entries: NDArray[Any], spare: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the buffer that holds the entries after the first `count` butterflies, and the other one."""
    stride = entries.size
    with np.errstate():  # at whose end numpy has its old buffers back
        np.setbufsize(BUFFER_SIZE)
        for _ in range(count):
            stride //= 2
            pairs, sums = entries.reshape(-1, 2, stride), spare.reshape(-1, 2, stride)
            np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
            np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
            entries, spare = spare, entries
    return entries, spare


def _transpose(entries: NDArray[Any], out: Vector, bits: int, factor: float = 1.0) -> None:
    """Write `factor` times the transpose of `entries` into `out`, as a matrix of 2^`bits` columns."""
    columns = 1 << bits
    matrix, turned = entries.reshape(-1, columns), out.reshape(columns, -1)
    for row in range(0, len(matrix), TRANSPOSE_COLUMNS):
        part = slice(row, row + TRANSPOSE_COLUMNS)
        if factor == 1.0:
            turned[:, part] = matrix[part].T
        else:
            np.multiply(matrix[part].T, np.float32(factor), out=turned[:, part])
