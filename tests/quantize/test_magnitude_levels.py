"""Kept entries by levels of magnitude."""

import numpy as np
import pytest

from fedcomp.core import CompensatedUpdate, Vector
from fedcomp.quantize import LloydMagnitudes, MagnitudeHierarchy, Ternarize, TopK
from fedcomp.quantized import Sparse


def sparse(values: Vector) -> Sparse:
    return Sparse(2 * values.size, 2 * np.arange(values.size), values)


def heavy(k: int, seed: int = 0) -> Sparse:
    return sparse(np.random.default_rng(seed).standard_t(2, k).astype(np.float32))


def test_half_of_the_entries_are_in_the_lowest_level_and_the_top_one_is_split_again() -> None:
    values = np.array([1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16], np.float32)
    found = MagnitudeHierarchy(levels=3, top_levels=2).quantize(sparse(values))
    assert np.bincount(found.levels).tolist() == [8, 4, 2, 2]
    assert found.magnitudes.tolist() == [4.5, 10.5, 13.5, 15.5]
    assert found.sparse().values.tolist()[-3:] == [-13.5, 15.5, -15.5]


def test_one_level_gives_the_values_of_sparse_ternary_compression() -> None:
    for seed in range(5):
        kept = TopK(0.1).quantize(CompensatedUpdate(np.random.default_rng(seed).standard_normal(5000, np.float32)))
        ours, theirs = MagnitudeHierarchy(1, 1).quantize(kept), Ternarize().quantize(kept)
        assert ours.dense().tobytes() == theirs.dense().tobytes()


@pytest.mark.parametrize("stage", [MagnitudeHierarchy(4, 2), MagnitudeHierarchy(16, 64), LloydMagnitudes(3)])
def test_each_level_is_the_mean_of_its_entries_and_higher_ones_are_larger(
    stage: MagnitudeHierarchy | LloydMagnitudes,
) -> None:
    value = heavy(3000)
    found = stage.quantize(value)
    magnitude = np.abs(value.values)
    assert np.array_equal(found.negative, value.values < 0)
    for level, mean in enumerate(found.magnitudes):
        assert magnitude[found.levels == level].mean(dtype=np.float64) == pytest.approx(float(mean), rel=1e-6)
    assert (np.diff(found.magnitudes) > 0).all()
    order = np.argsort(magnitude, kind="stable")
    assert (np.diff(found.levels[order].astype(int)) >= 0).all()


def test_more_levels_err_less_and_lloyds_err_less_than_equal_populations() -> None:
    value = heavy(20_000)

    def error(stage: MagnitudeHierarchy | LloydMagnitudes) -> float:
        return float(np.square(stage.quantize(value).sparse().values - value.values, dtype=np.float64).sum())

    errors = [error(MagnitudeHierarchy(levels, 1)) for levels in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)
    assert error(MagnitudeHierarchy(4, 4)) < error(MagnitudeHierarchy(4, 1))
    assert error(LloydMagnitudes(2)) < error(MagnitudeHierarchy(2, 1))
    assert error(LloydMagnitudes(1)) == pytest.approx(error(MagnitudeHierarchy(1, 1)))


def test_lloyds_edges_are_halfway_between_the_levels() -> None:
    value = heavy(5000, 3)
    found = LloydMagnitudes(3).quantize(value)
    magnitude = np.abs(value.values)
    middles = (found.magnitudes[1:].astype(np.float64) + found.magnitudes[:-1]) / 2
    best = np.searchsorted(middles, magnitude)
    assert np.count_nonzero(best != found.levels) <= 0.02 * magnitude.size


@pytest.mark.parametrize("stage", [MagnitudeHierarchy(4, 2), MagnitudeHierarchy(16, 64), LloydMagnitudes(8)])
def test_few_entries_ties_and_none_at_all(stage: MagnitudeHierarchy | LloydMagnitudes) -> None:
    for values in ([], [2.5], [1, -1, 1], [3e38, -3e38], [1e-45, 2e-45]):
        value = sparse(np.array(values, np.float32))
        found = stage.quantize(value)
        assert found.indices.size == len(values)
        assert np.isfinite(found.sparse().values).all()
        assert found.levels.max(initial=0) < max(1, found.magnitudes.size)
    assert stage.quantize(sparse(np.array([1, -1, 1], np.float32))).sparse().values.tolist() == [1, -1, 1]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="levels is 0; it is a whole number, 1 to 16"):
        MagnitudeHierarchy(0, 1)
    with pytest.raises(ValueError, match="top_levels is 65; it is a whole number, 1 to 64"):
        MagnitudeHierarchy(4, 65)
    with pytest.raises(ValueError, match="bits is 2.0; it is a whole number, 1 to 8"):
        LloydMagnitudes(2.0)  # type: ignore[arg-type]
