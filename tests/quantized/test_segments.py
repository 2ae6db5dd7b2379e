"""Vectors in pieces, and the products of thin matrices among them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.quantized import (
    LINEAR,
    Dense,
    Levels,
    Product,
    Scale,
    Segments,
    Ternary,
    join_dense,
    right_factors,
    worthwhile,
)
from tests.quantized.laws import check_adding

LEVELS = Levels(np.array([0, 2, 1], np.uint8), Scale(LINEAR, 3), np.array([0.5], np.float32), None, (3,))
TERNARY = Ternary(3, np.array([1]), np.array([True]), np.float32(0.25))
PIECES = Segments((Dense(np.array([1.5, -2], np.float32)), LEVELS, TERNARY, Dense(np.array([4], np.float32))))
SIDES = [
    (3, 3),
    (5, 400),
    (400, 5),
    (70, 1000),
    (3, BLOCK_ENTRIES + 100),
    (2, 2 * BLOCK_ENTRIES + 100),
    (BLOCK_ENTRIES + 3, 3),
]


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


def product(rows: int, columns: int, rank: int, n: int | None = None) -> Product:
    rng = np.random.default_rng([rows, columns, rank])
    left, right = (rng.standard_normal((rank, side)).astype(np.float32) for side in (rows, columns))
    return Product(rows * columns if n is None else n, left, right)


def slow_product(value: Product) -> NDArray[np.float32]:
    """Return the entries: in float32, the products are added in the order of r."""
    whole = np.zeros((value.left.shape[1], value.right.shape[1]), np.float32)
    for left, right in zip(value.left, value.right, strict=True):
        whole = whole + left[:, None] * right if whole.any() else left[:, None] * right
    return whole.ravel()[: value.n]


def test_a_matrix_of_rank_two_by_hand() -> None:
    left = np.array([[1, 2, 0], [0, 1, 1]], np.float32)
    right = np.array([[1, 0, -1], [10, 20, 30]], np.float32)
    assert Segments((Product(9, left, right),)).dense().tolist() == [1, 0, -1, 12, 20, 28, 10, 20, 30]
    assert Segments((Product(7, left, right),)).dense().tolist() == [1, 0, -1, 12, 20, 28, 10]
    assert Product(9, left, right).bound == 2 * 1 + 1 * 30


def test_the_bound_is_the_exact_sum_in_any_order() -> None:
    left = np.array([[1], [2**-24], [2**-24]], np.float32)
    right = np.array([[1], [2**-29], [2**-29]], np.float32)
    for order in ([0, 1, 2], [1, 2, 0]):
        assert Product(1, left[order], right[order]).bound == 1 + 2**-52


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_entries_are_sums_in_the_order_of_the_rank(sides: tuple[int, int], rank: int) -> None:
    for cut in (0, 1, sides[1] - 1 - sides[1] // 100, sides[1] - 1):
        value = product(*sides, rank, sides[0] * sides[1] - cut)
        assert Segments((value,)).dense().tobytes() == slow_product(value).tobytes()


@pytest.mark.parametrize("rank", [1, 3])
def test_parts_follow_each_other(rank: int) -> None:
    dense = np.arange(7, dtype=np.float32)
    parts = (Dense(dense), product(20, 30, rank), product(5, 400, rank), Dense(dense[:1]), product(9, 9, rank, 75))
    value = Segments(parts)
    expected = np.concatenate([Segments((part,)).dense() for part in parts])
    assert value.n == expected.size == 7 + 600 + 2000 + 1 + 75
    assert value.dense().tobytes() == expected.tobytes()
    assert right_factors(value).size == rank * (30 + 400 + 9)
    assert right_factors(Segments((Dense(dense),))).size == 0


def test_adding_is_adding_the_dense_vector() -> None:
    check_adding(Segments((product(70, 1000, 2), Dense(np.ones(5, np.float32)), product(400, 5, 1, 1998))))


def test_factors_are_worthwhile_if_they_are_fewer_numbers() -> None:
    assert not worthwhile(2, 2, 1)
    assert worthwhile(3, 3, 1)
    assert not worthwhile(4, 4, 2)
    assert not worthwhile(1, 1000, 1)
