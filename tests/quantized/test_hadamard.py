"""The Hadamard transform: by hand, against the matrix, and to the last bit in the order that the format fixes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized import aligned_buffer, transform
from fedcomp.quantized.hadamard import CACHE_LINE, transform_signs

LENGTHS = [1 << power for power in range(13)]


def sylvester(rows: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return these rows of the matrix: -1 to the number of bits that row and column have in common."""
    odd: NDArray[np.int64] = (np.bitwise_count(rows[:, None] & np.arange(length)) & 1).astype(np.int64)
    return 1 - 2 * odd


def slow_transform(entries: Vector) -> Vector:
    """Return the transform by pairs, those that are furthest apart first."""
    entries, half = entries.copy(), entries.size // 2
    while half:
        for begin in range(0, entries.size, 2 * half):
            low, high = entries[begin : begin + half].copy(), entries[begin + half : begin + 2 * half].copy()
            entries[begin : begin + half], entries[begin + half : begin + 2 * half] = low + high, low - high
        half //= 2
    return entries


def transformed(entries: Vector) -> Vector:
    return transform(entries.copy(), np.empty_like(entries))[0]


def test_four_entries_by_hand() -> None:
    # sums 4, 6 and differences -2, -2 of entries two apart; then 10, -2 and -4, 0
    assert transformed(np.array([1, 2, 3, 4], np.float32)).tolist() == [10, -2, -4, 0]


@pytest.mark.parametrize("length", [*LENGTHS, 1 << 16])
def test_a_vector_is_multiplied_by_sylvesters_matrix(length: int) -> None:
    rng = np.random.default_rng(length)
    entries = rng.integers(-100, 101, length)
    rows = rng.integers(0, length, 20)
    assert np.array_equal(transformed(entries.astype(np.float32))[rows], sylvester(rows, length) @ entries)


@pytest.mark.parametrize("length", [*LENGTHS, 1 << 16])
@pytest.mark.parametrize("row", [None, 0, -1])
def test_signs_are_transformed_as_numbers_are(length: int, row: int | None) -> None:
    # A row of the matrix itself leads to the largest sum, `length`.
    rng = np.random.default_rng(length)
    signs = rng.choice([-1, 1], length) if row is None else sylvester(np.array([row % length]), length)[0]
    out, spare = np.empty((2, length), np.float32)
    found = transform_signs(np.concatenate((signs, signs)).astype(np.int16), out, spare, 0.25)
    assert np.array_equal(found, transformed(signs.astype(np.float32)) / 4)


@pytest.mark.parametrize("length", [*LENGTHS, 1 << 16])
def test_sums_are_rounded_in_the_order_of_the_format(length: int) -> None:
    entries = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    assert transformed(entries).tobytes() == slow_transform(entries).tobytes()


def test_the_buffers_of_numpy_are_as_they_were() -> None:
    before = np.getbufsize()
    transformed(np.ones(1024, np.float32))
    assert np.getbufsize() == before


@pytest.mark.parametrize("size", [1, 8, 1000, 1 << 17])
def test_a_buffer_begins_with_a_cache_line(size: int) -> None:
    for kind in (np.int16, np.float32):
        room = aligned_buffer(size, kind)
        assert room.ctypes.data % CACHE_LINE == 0
        assert room.size == size
        assert room.dtype == np.dtype(kind)
