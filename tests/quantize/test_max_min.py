"""Bucketed max-min levels: by hand, the nearest one always, and at random with the right mean."""

import numpy as np
import pytest

from fedcomp.core.compensated_update import MAX_FLOAT32, CompensatedUpdate
from fedcomp.core.context import EncodeContext
from fedcomp.quantize.max_min import MaxMin
from fedcomp.quantized.levels import LINEAR
from tests.quantize.laws import check_mean

DRAWS = 2000


def test_levels_run_from_the_least_to_the_largest_of_the_bucket() -> None:
    # u = (5 + 1) / 3 = 2: levels -1, 1, 3, 5; 0.1 is nearest to 1, and 4 as near to 3 as to 5: up
    value = np.array([-1, 0.1, 4, 5, 3.9, 7, 7, 7, 7, 7, -2], np.float32)
    symbols = MaxMin(2, 5).encode(CompensatedUpdate(value))
    assert symbols.levels[:5].tolist() == [0, 1, 3, 3, 2]
    assert symbols.offsets is not None
    assert symbols.offsets.tolist() == [2, 7, -2]
    assert symbols.scales.tolist() == [3, 0, 0]
    assert (symbols.scale.kind, symbols.scale.count, symbols.groups) == (LINEAR, 4, 5)
    assert symbols.dense().tolist() == [-1, 1, 5, 5, 3, 7, 7, 7, 7, 7, -2]


def test_one_bit_is_the_least_and_the_largest() -> None:
    assert MaxMin(1, 4).encode(CompensatedUpdate(np.array([-2, 1, 6, 1.9], np.float32))).dense().tolist() == [
        -2,
        -2,
        6,
        -2,
    ]


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1.0, 1e30, 3.2e38])
@pytest.mark.parametrize("shift", [0.0, 0.9])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("bucket", [1, 100, 1024])
def test_every_entry_is_within_half_a_unit(bits: int, bucket: int, shift: float, scale: float) -> None:
    value = (((np.random.default_rng(bits).random(5000) * 2 - 1) * (1 - shift) + shift) * scale).astype(np.float32)
    found = MaxMin(bits, bucket).encode(CompensatedUpdate(value)).dense().astype(np.float64)
    for start in range(0, value.size, bucket):
        part = value[start : start + bucket].astype(np.float64)
        unit = (part.max() - part.min()) / (2**bits - 1)
        rounding = 2**-22 * np.abs(part).max() + 2 * 2.0**-149
        assert np.abs(found[start : start + bucket] - part).max() <= unit / 2 + rounding


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_bucket_of_one_value_keeps_it_and_has_one_level(stochastic: bool) -> None:
    for value in (0.0, 0.1, -1e-42, MAX_FLOAT32):
        symbols = MaxMin(4, 100, stochastic).encode(CompensatedUpdate(np.full(1000, value, np.float32)))
        assert (symbols.dense() == np.float32(value)).all()
        assert np.unique(symbols.levels).size == 1


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("scale", [1.0, 1e38, 1e-36])
def test_rounded_at_random_the_mean_over_draws_is_the_vector(bits: int, scale: float) -> None:
    bucket = np.clip(np.random.default_rng(7).standard_normal(40) + 0.5, -3, 3).astype(np.float32) * np.float32(scale)
    symbols = MaxMin(bits, 40, stochastic=True).encode(
        CompensatedUpdate(np.tile(bucket, DRAWS), context=EncodeContext(1))
    )
    values = np.linspace(float(bucket.min()), float(bucket.max()), 2**bits)
    check_mean(symbols.dense().reshape(DRAWS, 40), bucket, values, scale=float(np.abs(bucket).max()))


def test_rounded_at_random_every_entry_is_within_a_unit_and_its_bucket() -> None:
    value = np.random.default_rng(8).standard_normal(100 * 512, np.float32).reshape(100, 512)
    found = MaxMin(4, 512, stochastic=True).encode(CompensatedUpdate(value.ravel())).dense().reshape(100, 512)
    unit = (value.max(axis=1) - value.min(axis=1)) / 15
    assert (np.abs(found - value) <= unit[:, None] + 1e-5).all()
    assert (np.abs(found - value) > unit[:, None] / 2 + 1e-5).any()
    assert (found.max(axis=1) <= value.max(axis=1) + 1e-5).all()
