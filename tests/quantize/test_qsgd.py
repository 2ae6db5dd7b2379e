"""QSGD: levels by hand, and the three laws of its lemma."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import Qsgd
from fedcomp.quantize.buckets import norms
from fedcomp.quantized import LINEAR
from tests.quantize.laws import check_at_most, check_mean

DRAWS = 2000


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
