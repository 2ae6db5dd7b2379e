"""The Walsh-Hadamard transform of many short vectors at once, by additions and subtractions of two entries alone.

Each output bit is then the same on every machine: no sum is left to a library that may add in another order.

The vectors, of d entries each, are the columns of a (d, m) matrix that lies row by row.  A butterfly adds and subtracts
entries half the matrix apart, then a quarter, and so on: two long runs of memory, as long as the stride is long.  After
four of them the rows are regrouped so that the bits of the row number still to come are on top again: copying costs less
than butterflies over short runs.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CHUNK = 1 << 12
"""Entries of a chunk, the most that are transformed as one vector."""
ROTATION_BLOCK = 1 << 17
"""Entries transformed at a time, 32 chunks: two such buffers stay in the processor's cache."""
STEPS = 4
CACHE_LINE = 64


def power_of_two_parts(size: int) -> Iterator[tuple[slice, int]]:
    """Yield (part, d) of each matrix of a block of `size` <= BLOCK entries; no entry is padded.

    The parts are the powers of two that `size` is the sum of, largest first.  Each lies as (part / d, d) transposed: d rows,
    d the smaller of the part and LENGTH, whose columns are the chunks.
    """
    start = 0
    while start < size:
        part = 1 << (size - start).bit_length() - 1
        yield slice(start, start + part), min(part, MAX_CHUNK)
        start += part


def chunk_count(n: int) -> int:
    """Return how many chunks a vector of `n` entries has."""
    full, rest = divmod(n, ROTATION_BLOCK)
    return full * (ROTATION_BLOCK // MAX_CHUNK) + sum(
        len(range(part.start, part.stop, length)) for part, length in power_of_two_parts(rest)
    )


def transform(matrix: NDArray[Any], spare: NDArray[Any], length: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the columns times the Hadamard matrix of `length` rows, and the other buffer; both are overwritten.

    `matrix` and `spare` are flat and of one size and dtype.  The matrix H is not normalised: of entries ±1, symmetric, and
    H H = length.  The order is Sylvester's: H[i, j] is -1 to the number of bits that i and j have in common.
    """
    columns, bits = matrix.size // length, length.bit_length() - 1
    for first in range(0, bits, STEPS):
        rows, stride = 1 << min(STEPS, bits - first), matrix.size
        for _ in range(rows.bit_length() - 1):
            stride //= 2
            pairs, sums = matrix.reshape(-1, 2, stride), spare.reshape(-1, 2, stride)
            np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
            np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
            matrix, spare = spare, matrix
        if rows < length:
            spare.reshape(-1, rows, columns)[...] = matrix.reshape(rows, -1, columns).transpose(1, 0, 2)
            matrix, spare = spare, matrix
    return matrix, spare


def aligned_buffer(size: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return room for `size` numbers that begins with a cache line: across lines, the butterflies take twice as long."""
    width = np.dtype(dtype).itemsize
    octets = np.empty(size * width + CACHE_LINE, np.uint8)
    start = -octets.ctypes.data % CACHE_LINE
    return octets[start : start + size * width].view(dtype)
