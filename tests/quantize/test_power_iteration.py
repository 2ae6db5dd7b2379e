"""Matrices as products of thin ones: by hand, exact if the rank allows it, near the best approximation if not."""

from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext, RightFactors, Shapes, Vector
from fedcomp.quantize import LowRank
from fedcomp.quantized import Dense, Product, Segments, right_factors


def encoded(value: Vector, rank: int, shapes: Shapes = (), seed: int = 0, start: Vector | None = None) -> Segments:
    hint = None if start is None else RightFactors(start)
    return LowRank(rank).quantize(CompensatedUpdate(value, context=EncodeContext(seed, shapes=shapes), hint=hint))


def of_rank(rank: int, rows: int, columns: int) -> NDArray[np.float64]:
    rng = np.random.default_rng([rank, rows, columns])
    return rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))


def sides(value: Segments) -> list[tuple[int, ...]]:
    """Return (rows, columns) of the products, (entries,) of the others."""
    return [
        (part.left.shape[1], part.right.shape[1]) if isinstance(part, Product) else (part.n,) for part in value.pieces
    ]


def apart(found: Vector, value: Vector) -> float:
    """Return |found - value| / |value|."""
    whole = value.astype(np.float64)
    return float(np.linalg.norm(found - whole) / np.linalg.norm(whole))


def test_a_matrix_of_rank_one_by_hand() -> None:
    value = np.array([3, 6, -3, 0, 0, 0, 4, 8, -4], np.float32)  # (3, 0, 4) times (1, 2, -1)
    (part,) = encoded(value, 1, ((3, 3),)).pieces
    assert isinstance(part, Product)
    sign = np.sign(part.left[0, 0])
    assert np.allclose(sign * part.left, [[0.6, 0, 0.8]], atol=1e-6)
    assert np.allclose(sign * part.right, [[5, 10, -5]], atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(9, 9), (20, 300), (300, 20), (500, 400), (7, BLOCK_ENTRIES + 5)])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_matrix_of_the_rank_or_less_comes_back(rows: int, columns: int, rank: int) -> None:
    if rank * (rows + columns) >= rows * columns:
        rank = 1
    for true in range(1, rank + 1):
        value = of_rank(true, rows, columns).astype(np.float32).ravel()
        quantized = encoded(value, rank, ((rows, columns),))
        assert sides(quantized) == [(rows, columns)]
        assert apart(quantized.dense(), value) < 1e-5


def test_left_factors_are_orthonormal() -> None:
    value = np.random.default_rng(0).standard_normal(100 * 80).astype(np.float32)
    (part,) = encoded(value, 4, ((100, 80),)).pieces
    assert isinstance(part, Product)
    assert np.allclose(part.left @ part.left.T, np.eye(4), atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_warm_starts_reach_the_best_approximation(rank: int) -> None:
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((60, 60)))[0] for _ in range(2))
    matrix = (left * 0.8 ** np.arange(60)) @ right
    value = matrix.astype(np.float32).ravel()
    left, strengths, right = np.linalg.svd(matrix)
    best = (left[:, :rank] * strengths[:rank]) @ right[:rank]
    quantized = encoded(value, rank, ((60, 60),))
    first = apart(quantized.dense(), value)
    for _ in range(60):
        quantized = encoded(value, rank, ((60, 60),), start=right_factors(quantized))
    least = apart(best.ravel().astype(np.float32), value)
    assert first > 1.02 * least
    assert apart(quantized.dense(), value) < 1.0001 * least
    assert apart(quantized.dense(), best.ravel().astype(np.float32)) < 1e-3


def test_a_start_that_does_not_fit_is_ignored() -> None:
    value = np.random.default_rng(0).standard_normal(30 * 40).astype(np.float32)
    expected = encoded(value, 2, ((30, 40),)).dense().tobytes()
    starts = (
        np.zeros(79, np.float32),
        cast(Vector, np.ones(80)),
        np.full(80, np.nan, np.float32),
        np.zeros((2, 40), np.float32),
    )
    for start in (*starts, np.zeros(0, np.float32)):
        assert encoded(value, 2, ((30, 40),), start=start).dense().tobytes() == expected
    fits = np.random.default_rng(1).standard_normal(80).astype(np.float32)
    assert encoded(value, 2, ((30, 40),), start=fits).dense().tobytes() != expected


@pytest.mark.parametrize("strong", [0, 1])
def test_a_start_from_zeros_finds_a_new_direction(strong: int) -> None:
    start = np.zeros((2, 40), np.float32)
    start[:strong] = 1
    value = of_rank(2, 30, 40).astype(np.float32).ravel()
    assert apart(encoded(value, 2, ((30, 40),), start=start.ravel()).dense(), value) < 1e-5


def test_tensors_become_matrices_by_their_first_dimension_and_small_ones_stay_dense() -> None:
    shapes = ((8,), (16, 4, 3, 3), (16,), (), (0, 5), (2, 2), (10, 100), (1, 50), (30, 20), (5,))
    n = 8 + 576 + 16 + 1 + 4 + 1000 + 50 + 600 + 5
    value = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    quantized = encoded(value, 2, shapes)
    assert sides(quantized) == [(8,), (16, 36), (16 + 1 + 4,), (10, 100), (50,), (30, 20), (5,)]
    assert quantized.n == n
    found, start = quantized.dense(), 0
    for part in quantized.pieces:
        if isinstance(part, Dense):
            assert found[start : start + part.n].tobytes() == value[start : start + part.n].tobytes()
        start += part.n


def test_each_tensor_is_compressed_by_itself() -> None:
    shapes = ((30, 20), (7,), (10, 100))
    value = np.concatenate([of_rank(2, 30, 20).ravel(), np.ones(7), of_rank(2, 10, 100).ravel()]).astype(np.float32)
    assert apart(encoded(value, 2, shapes).dense(), value) < 1e-5


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, (1,)), (2, (2,)), (4, (4,)), (9, (3, 3)), (31, (6, 6)), (1000, (32, 32)), (100003, (316, 317)), (32, (6, 6))],
)
def test_a_vector_of_unknown_shapes_becomes_the_squarest_matrix(n: int, expected: tuple[int, ...]) -> None:
    value = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    quantized = encoded(value, 1)
    assert sides(quantized) == [expected]
    assert quantized.n == n == quantized.dense().size


def test_a_vector_of_unknown_shapes_and_low_rank_comes_back_without_the_padding_of_its_last_row() -> None:
    # as a matrix with 60 columns all rows are multiples of one; entries beyond the vector are taken for zeros
    value = np.zeros(3591, np.float32)
    value[: 59 * 60] = of_rank(1, 59, 60).ravel()
    quantized = encoded(value, 1)
    assert sides(quantized) == [(60, 60)]
    assert apart(quantized.dense(), value) < 1e-5


@pytest.mark.parametrize("shapes", [(), ((40, 50),), ((2000,),)])
def test_zeros_stay_zeros(shapes: Shapes) -> None:
    quantized = encoded(np.zeros(2000, np.float32), 2, shapes)
    assert not quantized.dense().any()
    again = encoded(np.zeros(2000, np.float32), 2, shapes, start=right_factors(quantized))
    assert not again.dense().any()


@pytest.mark.parametrize("exponent", [-126, -90, -50, 50, 90, 118])
def test_matrices_of_every_magnitude_come_back(exponent: int) -> None:
    value = np.ldexp(of_rank(2, 40, 50), exponent).astype(np.float32).ravel()
    assert apart(np.ldexp(encoded(value, 2, ((40, 50),)).dense(), -exponent), np.ldexp(value, -exponent)) < 1e-5


def test_denormals_come_back() -> None:
    rng = np.random.default_rng(0)
    value = (rng.integers(-30, 31, 40)[:, None] * rng.integers(-30, 31, 50) * 2.0**-149).astype(np.float32).ravel()
    assert np.array_equal(encoded(value, 1, ((40, 50),)).dense(), value)


def test_a_matrix_whose_right_factor_alone_would_leave_float32_comes_back() -> None:
    value = np.full(4000, 1e38, np.float32)  # 1e38 sqrt(40) is more than the largest
    assert apart(encoded(value, 1, ((40, 100),)).dense() / np.float32(1e38), np.ones(4000, np.float32)) < 1e-5


@pytest.mark.parametrize("peak", [1e38, 3.2e38, MAX_FLOAT32])
def test_huge_entries_and_their_residuals_stay_within_float32(peak: float) -> None:
    rng = np.random.default_rng(0)
    value = (rng.choice([-1.0, 1.0], 4000) * rng.uniform(0.9, 1, 4000) * peak).astype(np.float32)
    for rank in (1, 3):
        found = encoded(value, rank, ((40, 100),)).dense()
        assert np.isfinite(found).all()
        assert np.isfinite(value - found).all()


def test_only_the_seed_and_the_sum_decide() -> None:
    value = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    expected = encoded(value, 2, seed=3).dense().tobytes()
    assert encoded(value, 2, seed=3 + 2**64).dense().tobytes() == expected
    halves = CompensatedUpdate(value / 2, value / 2, context=EncodeContext(3), in_place=True)
    assert LowRank(2).quantize(halves).dense().tobytes() == expected
    assert halves.parts[0].tobytes() == value.tobytes()
    assert encoded(value, 2, seed=4).dense().tobytes() != expected
