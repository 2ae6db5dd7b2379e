"""The entries above a multiple of the mean magnitude."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate
from fedcomp.quantize import AboveMean, Ternarize, chain, error_bound, squared_error


def test_entries_above_the_multiple_of_the_mean_are_kept() -> None:
    vector = np.array([4, -2, 1, 0, -1, 0], np.float32)  # the mean magnitude is 4/3
    for factor, kept in ((0.0, [0, 1, 2, 4]), (0.7, [0, 1, 2, 4]), (0.75, [0, 1]), (0.99, [0, 1])):
        sparse = AboveMean(factor).quantize(CompensatedUpdate(vector))
        assert sparse.indices.tolist() == kept
        assert sparse.values.tolist() == vector[kept].tolist()


def test_the_mean_is_over_all_blocks() -> None:
    vector = np.ones(3 * BLOCK_ENTRIES, np.float32)
    vector[:BLOCK_ENTRIES], vector[-1] = 3, 1.25  # mean 5/3, threshold 7/6
    kept = AboveMean(0.7).quantize(CompensatedUpdate(vector)).indices
    assert np.array_equal(kept, [*range(BLOCK_ENTRIES), vector.size - 1])


def test_its_error_is_within_a_hundredth_of_the_best_threshold_for_a_gaussian_vector() -> None:
    vector = np.random.default_rng(0).standard_normal(100_000, np.float32)
    found = chain(AboveMean(0.7), Ternarize()).quantize(CompensatedUpdate(vector)).dense()
    error = np.square(found - vector.astype(np.float64)).sum()
    magnitudes = np.sort(np.abs(vector.astype(np.float64)))[::-1]
    gains = np.cumsum(magnitudes) ** 2 / np.arange(1, vector.size + 1)  # of the k largest at their mean
    best = np.square(magnitudes).sum() - gains.max()
    assert best <= error <= 1.01 * best
    assert error / np.square(magnitudes).sum() == pytest.approx(0.19, abs=0.005)


@pytest.mark.parametrize("factor", [0.7, 0.999])
@pytest.mark.parametrize("value", [2.0**-149, 2.0**-126, 1.0, MAX_FLOAT32])
def test_equal_entries_are_all_kept_whatever_their_size(factor: float, value: float) -> None:
    vector = np.tile(np.array([value, -value], np.float32), 3)
    assert np.array_equal(chain(AboveMean(factor), Ternarize()).quantize(CompensatedUpdate(vector)).dense(), vector)


def test_the_largest_entry_is_always_kept() -> None:
    for seed in range(50):
        vector = np.random.default_rng(seed).standard_t(1, 40).astype(np.float32)
        kept = AboveMean(0.999).quantize(CompensatedUpdate(vector)).indices
        assert int(np.abs(vector).argmax()) in kept


def test_zeros_alone_keep_nothing() -> None:
    quantized = chain(AboveMean(0.0), Ternarize()).quantize(CompensatedUpdate(np.zeros(5, np.float32)))
    assert quantized.dense().tolist() == [0] * 5


@pytest.mark.parametrize("factor", [-0.1, 1.0, float("nan"), "0.7"])
def test_a_factor_out_of_range_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="factor is"):
        AboveMean(factor)


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("n", [1, 2, 31, 1000])
def test_the_entries_that_are_dropped_keep_to_the_bound_where_they_are_largest(factor: float, n: int) -> None:
    """All but one are just below the threshold: v = (1, x, ... x) with x = factor (1 + (n - 1) x) / n."""
    least = factor / (n - factor * (n - 1))
    vector = np.full(n, least * (1 - 1e-6), np.float32)
    vector[0] = 1
    for values in (vector, np.ones(n, np.float32), np.random.default_rng(n).standard_cauchy(n).astype(np.float32)):
        square = np.square(values, dtype=np.float64).sum()
        for quantizer in (AboveMean(factor), chain(AboveMean(factor), Ternarize())):
            bound = squared_error(error_bound(quantizer, n))
            error = np.square(quantizer.quantize(CompensatedUpdate(values)).dense().astype(np.float64) - values).sum()
            assert error <= bound * square * (1 + 1e-6) + 1e-12
            assert bound < 1
