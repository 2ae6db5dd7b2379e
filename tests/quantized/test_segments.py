"""A vector in pieces: one after the other, and how they add up."""

import numpy as np
import pytest

from fedcomp.quantized.levels import LINEAR, Levels, Scale
from fedcomp.quantized.segments import Segments
from fedcomp.quantized.vectors import Dense

LEVELS = Levels(np.array([0, 2, 1], np.uint8), Scale(LINEAR, 3), np.array([0.5], np.float32), None, (3,))
PIECES = Segments((Dense(np.array([1.5, -2], np.float32)), LEVELS, Dense(np.array([4], np.float32))))


def test_the_vector_is_the_pieces_one_after_the_other() -> None:
    assert PIECES.n == 6
    assert PIECES.dense().tolist() == [1.5, -2, -0.5, 0.5, 0, 4]
    assert PIECES.dense().dtype == np.float32
    assert PIECES.sparse() is None  # type: ignore[func-returns-value]


def test_no_pieces_are_no_entries() -> None:
    assert Segments(()).n == 0
    assert Segments(()).dense().size == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pieces_are_added_with_a_weight_in_the_precision_of_the_sum(dtype: type[np.floating]) -> None:
    total = np.ones(6, dtype)
    PIECES.add_to(total)
    PIECES.add_to(total, 0.1)
    expected = 1 + PIECES.dense().astype(dtype)
    expected += np.multiply(PIECES.dense(), 0.1, dtype=dtype)
    assert total.dtype == dtype
    assert np.array_equal(total, expected)
