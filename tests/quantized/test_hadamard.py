"""The Hadamard transform: by hand, against the matrix, and to the last bit in the order that the format fixes."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core.types import Vector
from fedcomp.quantized.hadamard import (
    CACHE_LINE,
    MAX_CHUNK,
    ROTATION_BLOCK,
    aligned_buffer,
    chunk_count,
    power_of_two_parts,
    transform,
)

LENGTHS = [1 << power for power in range(13)]


def sylvester(length: int) -> NDArray[np.int64]:
    """Return the matrix: -1 to the number of bits that row and column have in common."""
    rows = np.arange(length)
    odd: NDArray[np.int64] = (np.bitwise_count(rows[:, None] & rows) & 1).astype(np.int64)
    return 1 - 2 * odd


def slowly(column: Vector) -> Vector:
    """Return the transform of one column by pairs, the ones that are furthest apart first."""
    entries, half = column.copy(), column.size // 2
    while half:
        for begin in range(0, entries.size, 2 * half):
            low, high = entries[begin : begin + half].copy(), entries[begin + half : begin + 2 * half].copy()
            entries[begin : begin + half], entries[begin + half : begin + 2 * half] = low + high, low - high
        half //= 2
    return entries


def transformed(matrix: NDArray[Any], length: int) -> NDArray[Any]:
    flat = matrix.ravel().copy()
    return transform(flat, np.empty_like(flat), length)[0].reshape(length, -1)


def test_four_entries_by_hand() -> None:
    # sums 4, 6 and differences -2, -2 of entries two apart; then 10, -2 and -4, 0
    assert transformed(np.array([1, 2, 3, 4], np.float32), 4).ravel().tolist() == [10, -2, -4, 0]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("columns", [1, 2, 3, 32])
def test_each_column_is_multiplied_by_sylvesters_matrix(length: int, columns: int) -> None:
    rng = np.random.default_rng(length + columns)
    matrix = rng.integers(-100, 101, (length, columns))
    rows = rng.integers(0, length, 20)  # some rows of the product: whole ones of 4096 take long
    expected = sylvester(length)[rows] @ matrix
    assert np.array_equal(transformed(matrix.astype(np.float32), length)[rows], expected)
    expected = sylvester(length)[rows] @ np.sign(matrix)
    assert np.array_equal(transformed(np.sign(matrix).astype(np.int16), length)[rows], expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_are_rounded_in_the_order_of_the_format(length: int) -> None:
    matrix = np.random.default_rng(length).standard_normal((length, 3)).astype(np.float32)
    expected = np.stack([slowly(column) for column in matrix.T], axis=1)
    assert transformed(matrix, length).tobytes() == expected.tobytes()


@pytest.mark.parametrize("length", LENGTHS)
def test_twice_is_as_many_times_as_there_are_rows(length: int) -> None:
    matrix = np.random.default_rng(length).integers(-9, 10, (length, 5)).astype(np.float32)
    assert np.array_equal(transformed(transformed(matrix, length), length), length * matrix)


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (1, [1]),
        (2, [2]),
        (31, [16, 8, 4, 2, 1]),
        (5000, [4096, 512, 256, 128, 8]),
        (3 * MAX_CHUNK, [MAX_CHUNK, MAX_CHUNK]),
        (ROTATION_BLOCK, [MAX_CHUNK]),
    ],
)
def test_a_block_is_the_powers_of_two_that_its_size_is_the_sum_of(size: int, lengths: list[int]) -> None:
    assert [length for _, length in power_of_two_parts(size)] == lengths


def test_pieces_lie_one_after_the_other_and_are_whole_chunks() -> None:
    for size in [
        *range(1, 300),
        *np.random.default_rng(0).integers(1, ROTATION_BLOCK, 300).tolist(),
        ROTATION_BLOCK - 1,
    ]:
        at = 0
        for part, length in power_of_two_parts(size):
            assert part.start == at
            assert (part.stop - at) % length == 0
            at = part.stop
        assert at == size


def test_chunks_are_counted_by_hand() -> None:
    # two blocks of 32; then 65536 = 16 chunks, 4096 = 1, 8 and 1
    assert chunk_count(2 * ROTATION_BLOCK + 65536 + 4096 + 8 + 1) == 64 + 16 + 1 + 1 + 1
    assert [chunk_count(n) for n in (1, 2, 3, 31, MAX_CHUNK, 2 * MAX_CHUNK)] == [1, 1, 2, 5, 1, 2]


@pytest.mark.parametrize("size", [1, 8, 1000, ROTATION_BLOCK])
def test_a_buffer_begins_with_a_cache_line(size: int) -> None:
    for kind in (np.int16, np.float32):
        room = aligned_buffer(size, kind)
        assert room.ctypes.data % CACHE_LINE == 0
        assert room.size == size
        assert room.dtype == np.dtype(kind)
