"""Products of thin matrices: by hand, to the bit in the order of the format, and between dense entries."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.quantized import Dense, Product, Segments, right_factors, worthwhile

SIDES = [
    (3, 3),
    (5, 400),
    (400, 5),
    (70, 1000),
    (3, BLOCK_ENTRIES + 100),
    (2, 2 * BLOCK_ENTRIES + 100),
    (BLOCK_ENTRIES + 3, 3),
]


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


@pytest.mark.parametrize("weight", [1.0, -1.0, 0.3])
def test_adding_is_adding_the_dense_vector(weight: float) -> None:
    value = Segments((product(70, 1000, 2), Dense(np.ones(5, np.float32)), product(400, 5, 1, 1998)))
    start = np.random.default_rng(0).standard_normal(value.n)
    whole = start.copy()
    value.add_to(whole, weight)
    assert np.array_equal(whole, start + weight * value.dense().astype(np.float64))
    small = start.astype(np.float32)
    value.add_to(small, -1.0)
    assert np.array_equal(small, start.astype(np.float32) - value.dense())


def test_factors_are_worthwhile_if_they_are_fewer_numbers() -> None:
    assert not worthwhile(2, 2, 1)
    assert worthwhile(3, 3, 1)
    assert not worthwhile(4, 4, 2)
    assert not worthwhile(1, 1000, 1)
