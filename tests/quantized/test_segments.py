"""A vector in pieces: their order, and their sums."""

import numpy as np
import pytest

from fedcomp.quantized import LINEAR, Dense, Levels, Scale, Segments, Ternary, join_dense

LEVELS = Levels(np.array([0, 2, 1], np.uint8), Scale(LINEAR, 3), np.array([0.5], np.float32), None, (3,))
TERNARY = Ternary(3, np.array([1]), np.array([True]), np.float32(0.25))
PIECES = Segments((Dense(np.array([1.5, -2], np.float32)), LEVELS, TERNARY, Dense(np.array([4], np.float32))))


def test_the_vector_is_the_pieces_one_after_the_other() -> None:
    assert PIECES.n == 9
    assert PIECES.dense().tolist() == [1.5, -2, -0.5, 0.5, 0, 0, -0.25, 0, 4]
    assert PIECES.dense().dtype == np.float32
    assert PIECES.sparse() is None  # type: ignore[func-returns-value]


def test_neighbours_that_are_dense_become_one_piece() -> None:
    one, two = (Dense(np.array([value], np.float32)) for value in (1, 2))
    pieces: list[Levels | Dense | Ternary] = [one, two, LEVELS, TERNARY, two, one, one]
    joined = join_dense(pieces).pieces
    assert [piece.dense().tolist() for piece in joined] == [[1, 2], [-0.5, 0.5, 0], [0, -0.25, 0], [2, 1, 1]]


def test_no_pieces_are_no_entries() -> None:
    assert Segments(()).n == 0
    assert Segments(()).dense().size == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pieces_are_added_with_a_weight_in_the_precision_of_the_sum(dtype: type[np.floating]) -> None:
    total = np.ones(9, dtype)
    PIECES.add_to(total)
    PIECES.add_to(total, 0.1)
    expected = 1 + PIECES.dense().astype(dtype)
    expected += np.multiply(PIECES.dense(), 0.1, dtype=dtype)
    assert total.dtype == dtype
    assert np.array_equal(total, expected)
