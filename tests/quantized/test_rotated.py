"""Levels rotated back: the levels that are best for N(0, 1), and the vector as a slow reader of the format finds it."""

import math
from itertools import pairwise

import numpy as np
import pytest

from fedcomp.core import MAX_FLOAT32, Vector
from fedcomp.quantized import (
    MAX_CHUNK,
    MAX_GAIN,
    MAX_SCALE,
    Rotated,
    Rotation,
    centroids,
    rotated_count,
    rotated_indices,
)
from fedcomp.quantized.rotated import CENTROIDS
from tests.quantized.laws import check_adding
from tests.reference import coins, level_widths, random_words, slow_rotated

RATES = [1e-3, 0.3, 1.0, 1.25, 2.0, 2.5, 3.0, 3.75, 4.0]
SIZES = [1, 2, 31, 1000, 5001, 2 * MAX_CHUNK + 77]


def random_rotated(bits: float, n: int, seed: int = 7) -> Rotated:
    """Return random levels and scales."""
    rng, bits = np.random.default_rng([n, int(bits * 1000)]), float(np.float32(bits))
    k = rotated_count(bits, n)
    rotation = Rotation(seed, k)
    levels = rng.integers(0, 2 ** np.array(level_widths(seed, bits, rotation.places))).astype(np.uint8)
    scales = rng.lognormal(0, 1, rotation.num_chunks).astype(np.float32)
    return Rotated(n, seed, bits, scales, levels, rotated_indices(seed, n, k) if bits < 1 else None)


def phi(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def above(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_each_centroid_is_the_mean_of_the_normal_numbers_next_to_it(bits: int) -> None:
    positive = CENTROIDS[bits - 1]
    bounds = [0.0, *((low + high) / 2 for low, high in pairwise(positive)), 40.0]
    for level, low, high in zip(positive, bounds, bounds[1:], strict=False):
        steps = np.linspace(low, min(high, 12.0), 200_001)
        density = np.exp(-(steps**2) / 2)
        assert level == pytest.approx(float(np.trapezoid(steps * density) / np.trapezoid(density)), abs=2e-7)
        assert level == pytest.approx((phi(low) - phi(high)) / (above(low) - above(high)), abs=2e-7)


@pytest.mark.parametrize(("bits", "distortion"), [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_the_centroids_leave_the_error_of_maxs_table(bits: int, distortion: float) -> None:
    x = np.linspace(-9, 9, 400_001)
    nearest = np.abs(x[:, None] - centroids(bits)).min(axis=1)
    error = np.trapezoid(nearest**2 * np.exp(-(x**2) / 2), x) / math.sqrt(2 * math.pi)
    assert error == pytest.approx(distortion, rel=1e-3)


def test_two_entries_by_hand() -> None:
    # H (1, -1) = (0, 2), times 2^0 and the scale 3; the seed decides which entry is in the second place, and its sign
    value = Rotated(2, 5, 1.0, np.array([3], np.float32), np.array([1, 0], np.uint8))
    signs = [-1.0 if coin else 1.0 for coin in coins(5, 2)]
    expected = [0.0, 6.0 * signs[1]] if int(random_words(5, 3, 1)[0]) % 2 == 0 else [6.0 * signs[0], 0.0]
    assert value.dense().tolist() == expected


@pytest.mark.sample(25)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("bits", RATES)
def test_entries_are_those_of_a_slow_reader_to_the_bit(bits: float, n: int) -> None:
    value = random_rotated(bits, n)
    expected = slow_rotated(n, value.seed, value.bits, value.scales.tolist(), value.levels.tolist())
    assert value.dense().tobytes() == expected.tobytes()


@pytest.mark.sample(25)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("bits", RATES)
def test_adding_is_adding_the_dense_vector(bits: float, n: int) -> None:
    check_adding(random_rotated(bits, n))


@pytest.mark.parametrize("bits", [0.999, 0.5, 1e-9])
def test_less_than_a_bit_leaves_the_other_entries_out(bits: float) -> None:
    value = random_rotated(bits, 1000)
    sparse = value.sparse()
    assert sparse is not None
    assert sparse.indices.size == max(1, round(float(np.float32(bits)) * 1000))
    assert np.array_equal(sparse.dense(), value.dense())
    assert random_rotated(1.0, 1000).sparse() is None


def test_kept_entries_are_rounded_half_up_and_at_least_one() -> None:
    assert [rotated_count(0.5, n) for n in (1, 2, 3, 5)] == [1, 1, 2, 3]
    assert rotated_count(1e-30, 1000) == 1
    assert rotated_count(1.0, 7) == rotated_count(3.5, 7) == 7


@pytest.mark.parametrize("bits", [1.0, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("length", [1, 2, 64, 2048, MAX_CHUNK])
def test_no_levels_lead_beyond_float32(bits: float, length: int) -> None:
    """The worst ones are a row of the matrix, at the largest scale."""
    row = np.bitwise_count(np.arange(length) & length // 3) & 1
    widths = np.array(level_widths(0, bits, length))
    scales = np.full(1, np.nextafter(MAX_SCALE, np.float32(0)))
    values: Vector = Rotated(length, 0, bits, scales, (row * (2**widths - 1)).astype(np.uint8)).dense()
    assert np.abs(values).max() <= min(MAX_FLOAT32, MAX_GAIN * float(MAX_SCALE))
