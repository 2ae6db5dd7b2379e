"""Levels by hand, rounding between neighbours, the means over many draws, and the papers' second moments."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import Natural, NaturalDithering, Qsgd
from fedcomp.quantize.buckets import norms
from fedcomp.quantize.random_rounding import dithered
from fedcomp.quantized import EXPONENTS, LINEAR, POWERS, Scale
from tests.quantize.laws import check_at_most, check_mean

DRAWS = 2000
LOWEST, HIGHEST = 0, 2**32 - 1


def drawn(quantizer: Qsgd, bucket: Vector, seed: int = 0) -> NDArray[np.float32]:
    """One vector of as many equal buckets as there are draws: each bucket is a draw of its own."""
    many = quantizer.quantize(CompensatedUpdate(np.tile(bucket, DRAWS), context=EncodeContext(seed))).dense()
    return many.reshape(DRAWS, bucket.size)


def buckets() -> list[Vector]:
    rng = np.random.default_rng(1)
    gauss = rng.standard_normal(40, np.float32)
    wide = (gauss * 10.0 ** rng.integers(-6, 1, 40)).astype(np.float32)
    return [gauss, wide, np.ones(40, np.float32), gauss * np.float32(1e37), gauss * np.float32(1e-37)]


def test_entries_on_levels_are_exact() -> None:
    # Norm 5 of 3, -4; with 5 levels these are 3 and -4 of them.  A bucket of zeros has scale 0.
    quantized = Qsgd(5, "l2", 3).quantize(CompensatedUpdate(np.array([3, -4, 0, 0, 0, 0, -2], np.float32)))
    assert quantized.levels.tolist() == [8, 1, 5, 5, 5, 5, 0]
    assert quantized.scales.tolist() == [5, 0, 2]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (LINEAR, 11, 3)
    assert quantized.dense() == pytest.approx([3, -4, 0, 0, 0, 0, -2])


def test_the_largest_entry_of_a_bucket_keeps_its_value_for_every_draw() -> None:
    for levels in (1, 7, 255):
        for largest in (2.0**-149, 1e-42, 0.1, 3.0, MAX_FLOAT32):
            vector = np.array([largest, largest / 3, -largest], np.float32)
            many = drawn(Qsgd(levels, "max", 3), vector)
            assert (many[:, 0] == vector[0]).all()
            assert (many[:, 2] == vector[2]).all()


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("levels", [1, 4, 7, 127, 255])
def test_the_mean_over_draws_is_the_vector(levels: int, norm: str) -> None:
    for seed, bucket in enumerate(buckets()):
        quantizer = Qsgd(levels, norm, 40)
        values = np.arange(-levels, levels + 1) / levels * float(norms(bucket[None], norm)[0])
        check_mean(drawn(quantizer, bucket, seed), bucket, values)


@pytest.mark.parametrize("levels", [1, 2, 4])
@pytest.mark.parametrize("n", [16, 100, 400])
def test_the_expected_number_of_non_zeros_is_within_the_papers_bound(levels: int, n: int) -> None:
    for bucket in (np.random.default_rng(n).standard_normal(n, np.float32), np.ones(n, np.float32)):
        kept = np.count_nonzero(drawn(Qsgd(levels, "l2", n), bucket), axis=1)
        check_at_most(kept.astype(np.float64), levels * (levels + math.sqrt(n)))


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("levels", [1, 3, 7])
@pytest.mark.parametrize("n", [1, 16, 100, 400])
def test_the_variance_is_within_the_constant(levels: int, n: int, norm: str) -> None:
    quantizer = Qsgd(levels, norm, n)
    rng = np.random.default_rng(n)
    for bucket in (rng.standard_normal(n, np.float32), rng.standard_t(2, n).astype(np.float32), np.eye(1, n)[0] + 0.01):
        errors = drawn(quantizer, bucket.astype(np.float32)) - bucket.astype(np.float32)
        square = np.square(bucket).sum()
        check_at_most(np.square(errors, dtype=np.float64).sum(axis=1) / square, quantizer.variance_constant + 1e-10)


@pytest.mark.parametrize("levels", [1, 3, 7])
@pytest.mark.parametrize("n", [2, 16, 400])
def test_the_constant_of_the_largest_magnitude_is_reached_by_the_worst_bucket(levels: int, n: int) -> None:
    # One entry of 1 and n - 1 of t levels, t = 1 / (1 + sqrt(1 + (n - 1) / s^2)).
    quantizer = Qsgd(levels, "max", n)
    t = 1 / (1 + math.sqrt(1 + (n - 1) / levels**2))
    bucket = np.full(n, t / levels, np.float32)
    bucket[0] = 1
    variance = (n - 1) * t * (1 - t) / levels**2 / (1 + (n - 1) * t**2 / levels**2)
    assert quantizer.variance_constant == pytest.approx(variance)
    assert quantizer.variance_constant <= n / (4 * levels**2)
    found = np.square(drawn(quantizer, bucket) - bucket, dtype=np.float64).sum(axis=1) / np.square(bucket).sum()
    assert abs(found.mean() - variance) <= 4 * found.std(ddof=1) / math.sqrt(DRAWS) + 1e-6


def test_the_constant_of_the_euclidean_norm_is_the_papers() -> None:
    assert Qsgd(4, "l2", 512).variance_constant == pytest.approx(math.sqrt(512) / 4)
    assert Qsgd(127, "l2", 512).variance_constant == pytest.approx(512 / 127**2)


def test_levels_beyond_a_byte_take_two() -> None:
    vector = np.random.default_rng(0).standard_normal(100, np.float32)
    assert Qsgd(127, "max", 64).quantize(CompensatedUpdate(vector)).levels.dtype == np.uint8
    assert Qsgd(128, "max", 64).quantize(CompensatedUpdate(vector)).levels.dtype == np.uint16


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


def test_the_mean_of_powers_of_two_over_draws_is_the_vector() -> None:
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


def test_halvings_of_the_norm_are_exact() -> None:
    quantized = NaturalDithering(3, "max", 8).quantize(
        CompensatedUpdate(np.array([8, -8, 4, -4, 2, -2, 0, -0.0, 3], np.float32))
    )
    assert quantized.levels.tolist() == [6, 0, 5, 1, 4, 2, 3, 3, 6]
    assert quantized.scales.tolist() == [8, 3]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (POWERS, 7, 8)
    assert quantized.dense().tolist() == [8, -8, 4, -4, 2, -2, 0, 0, 3]


@pytest.mark.parametrize("levels", [1, 2, 8, 64])
def test_every_draw_is_a_neighbouring_level_of_the_ratio(levels: int) -> None:
    grid = np.concatenate([[0], 2.0 ** np.arange(1 - levels, 1)])
    rng = np.random.default_rng(levels)
    inside = np.concatenate([rng.random(5000), 2.0 ** rng.uniform(-levels - 3, 0, 5000)]).astype(np.float32)
    for word in (LOWEST, HIGHEST):
        assert dithered(grid.astype(np.float32), levels, np.full(grid.size, word, np.uint32)).tolist() == list(
            range(levels + 1)
        )
        found = grid[dithered(-inside, levels, np.full(inside.size, word, np.uint32))]
        below = grid[np.searchsorted(grid, inside, "right") - 1]
        above = grid[np.minimum(np.searchsorted(grid, inside, "right"), levels)]
        assert ((found == below) | (found == above)).all()
        assert (found <= below).mean() > 0.99 if word == LOWEST else (found >= above).mean() > 0.99


def test_entries_between_levels_are_rounded() -> None:
    vector = np.random.default_rng(0).standard_normal(10_000, np.float32)
    quantized = NaturalDithering(8, "l2", 100).quantize(CompensatedUpdate(vector))
    found = quantized.dense()
    assert not (found == vector).any()
    ratios = np.abs(found.reshape(-1, 100) / quantized.scales[:, None])
    assert np.isin(ratios, np.concatenate([[0], 2.0 ** np.arange(-7, 1)])).all()
    assert np.unique(quantized.levels).size > 10


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("levels", [1, 2, 8, 30])
def test_the_mean_of_halving_levels_over_draws_is_the_vector(levels: int, norm: str) -> None:
    rng = np.random.default_rng(levels)
    gauss = rng.standard_normal(40, np.float32)
    wide = (gauss * 10.0 ** rng.integers(-4, 1, 40)).astype(np.float32)
    for seed, bucket in enumerate((gauss, wide, np.ones(40, np.float32), gauss * np.float32(1e37))):
        quantized = NaturalDithering(levels, norm, 40).quantize(
            CompensatedUpdate(np.tile(bucket, DRAWS), context=EncodeContext(seed))
        )
        values = quantized.scale.values() * quantized.scales[0]
        check_mean(quantized.dense().reshape(DRAWS, 40), bucket, values)


@pytest.mark.parametrize("largest", [2.0**-149, 1e-42, 0.1, MAX_FLOAT32])
def test_the_largest_entry_of_a_bucket_keeps_its_value(largest: float) -> None:
    vector = np.tile(np.array([largest, -largest / 3], np.float32), DRAWS)
    found = NaturalDithering(8, "max", 2).quantize(CompensatedUpdate(vector)).dense()
    assert (found[::2] == np.float32(largest)).all()
