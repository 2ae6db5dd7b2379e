"""Kept entries in few magnitudes: by hand, the law of the means, and the ends of float32."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, Vector
from fedcomp.errors import DivergedError
from fedcomp.quantize import LloydMagnitudes, Logarithmic, MagnitudeHierarchy, Ternarize, TopK
from fedcomp.quantized import Sparse


def test_the_magnitude_is_the_mean_of_the_kept_magnitudes_and_not_over_the_zeros() -> None:
    kept = TopK(0.01).quantize(
        CompensatedUpdate(np.concatenate([np.array([3, -1], np.float32), np.zeros(198, np.float32)]))
    )
    ternary = Ternarize().quantize(kept)
    assert ternary.magnitude == 2
    assert ternary.negative.tolist() == [False, True]
    assert ternary.sparse().values.tolist() == [2, -2]


def test_nothing_kept_has_no_magnitude_and_decodes_to_zeros() -> None:
    nothing = Ternarize().quantize(Sparse(5, np.empty(0, np.int64), np.empty(0, np.float32)))
    assert nothing.magnitude == 0
    assert nothing.dense().tolist() == [0] * 5


def test_the_mean_keeps_small_entries_next_to_large_ones() -> None:
    values = np.full(4 * BLOCK_ENTRIES + 1, 1, np.float32)
    values[0] = 2**25
    ternary = Ternarize().quantize(Sparse(values.size, np.arange(values.size), values))
    assert ternary.magnitude == np.float32((2**25 + 4 * BLOCK_ENTRIES) / values.size)


@pytest.mark.parametrize("value", [2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)])
def test_the_ends_of_float32_are_their_own_mean(value: float) -> None:
    values = np.full(3 * BLOCK_ENTRIES, value, np.float32)
    ternary = Ternarize().quantize(Sparse(values.size, np.arange(values.size), values))
    assert ternary.magnitude == np.float32(value)


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


def test_magnitudes_become_the_nearest_power_of_the_base_below_the_largest() -> None:
    update = np.array([8, -5, 3, -2, 1, 0.1, 0], np.float32)
    found = Logarithmic(base=2, levels=3).quantize(CompensatedUpdate(update))
    assert found.indices.tolist() == [0, 1, 2, 3]  # 8 / 2^2.5 = 1.41 is the cut
    assert found.levels.tolist() == [0, 1, 1, 2]
    assert found.sparse().values.tolist() == [8, -4, 4, -2]


def test_a_kept_entry_is_off_by_the_root_of_the_base_at_most_and_all_above_the_cut_are_kept() -> None:
    update = np.random.default_rng(0).standard_t(2, 100_000).astype(np.float32)
    for base, levels in ((2**0.25, 8), (1.5, 20), (10, 3)):
        found = Logarithmic(base, levels).quantize(CompensatedUpdate(update))
        largest = np.abs(update).max()
        assert np.array_equal(found.indices, np.flatnonzero(np.abs(update) >= largest / base ** (levels - 0.5)))
        factor = np.abs(found.sparse().values.astype(np.float64) / update[found.indices])
        assert factor.max() <= np.sqrt(base) * (1 + 1e-5)
        assert factor.min() >= 1 / np.sqrt(base) * (1 - 1e-5)
        assert np.array_equal(found.sparse().values < 0, update[found.indices] < 0)


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 3e38])
def test_the_ends_of_float32(scale: float) -> None:
    update = (np.array([1, -0.9, 0.4, 0]) * scale).astype(np.float32)
    found = Logarithmic(2, 4).quantize(CompensatedUpdate(update))
    assert found.indices[:2].tolist() == [0, 1]
    assert np.isfinite(found.dense()).all()
    assert found.sparse().values.all()


def test_a_base_beyond_all_floats_at_its_highest_power_keeps_all_but_zeros() -> None:
    update = np.array([1, 0, 1e-30], np.float32)
    assert Logarithmic(1024, 256).quantize(CompensatedUpdate(update)).indices.tolist() == [0, 2]


def test_zeros_are_not_kept_if_the_cut_is_below_float32() -> None:
    update = np.array([0, 2e-45, 0, -1e-44], np.float32)
    assert Logarithmic(2, 40).quantize(CompensatedUpdate(update)).indices.tolist() == [1, 3]


def test_nothing_is_kept_of_zeros() -> None:
    assert not Logarithmic(2, 4).quantize(CompensatedUpdate(np.zeros(5, np.float32))).indices.size


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_kept_entry_that_is_not_finite_has_no_mean(value: float) -> None:
    with pytest.raises(DivergedError, match="NaN or infinity"):
        Ternarize().quantize(Sparse(5, np.array([1, 3]), np.array([1, value], np.float32)))
