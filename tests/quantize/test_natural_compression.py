"""Natural compression: powers of two by hand, the mean, and the second moment."""

import numpy as np
import pytest

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import Natural
from fedcomp.quantized import EXPONENTS, Scale
from tests.quantize.laws import check_at_most, check_mean

DRAWS = 2000


def sent(vector: Vector, seed: int = 0) -> Vector:
    return Natural().quantize(CompensatedUpdate(vector, context=EncodeContext(seed))).dense()


def test_powers_of_two_stay_and_have_the_levels_of_their_exponents() -> None:
    vector = np.array([0, 1, -1, 2, 0.5, 2.0**127, -(2.0**127), 2.0**-126, -(2.0**-126), -0.0], np.float32)
    quantized = Natural().quantize(CompensatedUpdate(vector))
    assert quantized.levels.tolist() == [254, 381, 127, 382, 380, 508, 0, 255, 253, 254]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (EXPONENTS, 509, (10,))
    assert quantized.scales.tolist() == [1]
    assert quantized.dense().tolist() == vector.tolist()


def test_every_power_of_two_stays() -> None:
    powers = np.ldexp(np.float32(1), np.arange(-126, 128)).astype(np.float32)
    for sign in (1, -1):
        for seed in range(20):
            assert np.array_equal(sent(sign * powers, seed), sign * powers)


def test_every_entry_goes_to_one_of_its_two_neighbours() -> None:
    vector = np.random.default_rng(0).standard_normal(200_000, np.float32)
    ratio = sent(vector) / vector
    assert ratio.min() > 0.5
    assert ratio.max() < 2
    mantissa, exponent = np.frexp(np.abs(sent(vector)))
    assert set(mantissa.tolist()) == {0.5}
    assert np.isin(exponent - np.frexp(np.abs(vector))[1], (0, 1)).all()


def test_three_goes_to_two_and_to_four_equally_often() -> None:
    found = sent(np.full(DRAWS, 3, np.float32))
    assert set(found.tolist()) == {2, 4}
    assert abs(np.mean(found == 4) - 0.5) <= 4 * 0.5 / np.sqrt(DRAWS)


def test_a_denormal_goes_to_zero_or_the_smallest_normal_number() -> None:
    smallest = float(np.finfo(np.float32).smallest_normal)
    found = sent(np.full(DRAWS, smallest / 4, np.float32))
    assert set(found.tolist()) == {0, smallest}
    assert abs(np.mean(found > 0) - 0.25) <= 4 * np.sqrt(3 / 16 / DRAWS)


def test_nothing_is_rounded_up_to_infinity() -> None:
    for value in (MAX_FLOAT32, -MAX_FLOAT32, 3.2e38, 1.8e38):
        assert set(sent(np.full(DRAWS, value, np.float32)).tolist()) == {np.sign(value) * 2.0**127}


def test_the_mean_over_draws_is_the_vector() -> None:
    rng = np.random.default_rng(2)
    gauss = rng.standard_normal(60, np.float32)
    for seed, scale in enumerate((1.0, 1e-38, 1e-42, 1e36)):
        vector = (gauss * scale).astype(np.float32)
        check_mean(sent(np.tile(vector, DRAWS), seed).reshape(DRAWS, -1), vector, Scale(EXPONENTS, 509).values())


@pytest.mark.parametrize("name", ["gauss", "worst", "uniform", "heavy", "denormal"])
def test_the_second_moment_is_at_most_nine_eighths(name: str) -> None:
    rng = np.random.default_rng(3)
    vector = {
        "gauss": rng.standard_normal(100),
        "worst": np.full(100, 4 / 3),  # 2/3 to 1, 1/3 to 2: 2 instead of 16/9
        "uniform": rng.random(100),
        "heavy": rng.standard_t(1, 100),
        "denormal": rng.uniform(1, 2, 100) * 2.0**-126,
    }[name].astype(np.float32)
    scale = float(np.abs(vector).max())
    found = sent(np.tile(vector, DRAWS)).reshape(DRAWS, -1) / np.float64(scale)
    moments = np.square(found).sum(axis=1) / np.square(vector / np.float64(scale)).sum()
    check_at_most(moments, 9 / 8 + 1e-6)
    if name == "worst":
        assert abs(moments.mean() - 9 / 8) <= 4 * moments.std(ddof=1) / np.sqrt(DRAWS) + 1e-6
