"""Logarithmic levels below the largest magnitude."""

import numpy as np
import pytest
import torch

from fedcomp.core import CompensatedUpdate
from fedcomp.errors import NonFiniteError
from fedcomp.quantize import Logarithmic


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


def test_torch_tensors_give_the_same() -> None:
    update = np.random.default_rng(1).standard_normal(1000, np.float32)
    one, other = (
        Logarithmic(1.2, 6).quantize(CompensatedUpdate(given)) for given in (update, torch.from_numpy(update))
    )
    assert one.dense().tobytes() == other.dense().tobytes()


def test_nothing_and_nan() -> None:
    assert not Logarithmic(2, 4).quantize(CompensatedUpdate(np.zeros(5, np.float32))).indices.size
    with pytest.raises(NonFiniteError):
        Logarithmic(2, 4).quantize(CompensatedUpdate(np.array([1, np.nan], np.float32)))


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="base is 1; it is a number, at least 1.001 and at most 1024"):
        Logarithmic(1, 4)
    with pytest.raises(ValueError, match="levels is 0; it is a whole number, 1 to 256"):
        Logarithmic(2, 0)
