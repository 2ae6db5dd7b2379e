"""Levels rotated back: the levels that are best for N(0, 1), and the vector as a slow reader of the format finds it."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core.compensated_update import MAX_FLOAT32
from fedcomp.core.random_stream import RandomStream
from fedcomp.core.types import Vector
from fedcomp.quantized.hadamard import MAX_CHUNK, ROTATION_BLOCK, chunk_count, power_of_two_parts
from fedcomp.quantized.rotated import CENTROIDS, MAX_SCALE, Rotated, centroids, rotated_count, rotated_indices
from tests.reference import coins

RATES = [1e-3, 0.3, 1.0, 1.25, 2.0, 2.5, 3.0, 3.75, 4.0]
SIZES = [1, 2, 31, 1000, 5001, ROTATION_BLOCK + 77]


def sylvester_row(row: int, length: int) -> NDArray[np.float64]:
    odd = np.bitwise_count(np.arange(length) & row) & 1
    return np.where(odd, -1.0, 1.0)


def symbols(rate: float, n: int, seed: int = 7) -> Rotated:
    """Random levels and scales."""
    rng, rate = np.random.default_rng([n, int(rate * 1000)]), float(np.float32(rate))
    k = rotated_count(rate, n)
    width = np.full(k, max(1, math.floor(rate)))
    if rate > 1:
        halves = RandomStream(seed, 1).words(-(-k // 16)).astype("<u4").view("<u2")[: -(-k // 8)]
        width += (halves < int(rate % 1 * 65536)).repeat(8)[:k]
    levels = rng.integers(0, 2**width).astype(np.uint8)
    scales = rng.lognormal(0, 1, chunk_count(k)).astype(np.float32)
    return Rotated(n, seed, rate, scales, levels, rotated_indices(seed, n, k) if rate < 1 else None)


def place_in(k: int, place: int) -> tuple[int, NDArray[np.int64], int]:
    """Return the number of the chunk that an entry lies in, where its entries lie, and which of them it is."""
    start = place // ROTATION_BLOCK * ROTATION_BLOCK
    chunk = start // MAX_CHUNK
    for part, length in power_of_two_parts(min(ROTATION_BLOCK, k - start)):
        count = (part.stop - part.start) // length
        if place < start + part.stop:
            row, column = divmod(place - start - part.start, count)
            return chunk + column, start + part.start + column + count * np.arange(length), row
        chunk += count
    raise AssertionError(f"no piece holds entry {place} of {k}")


def some_entries(value: Rotated, places: NDArray[np.int64]) -> list[float]:
    """Return the entries that lie at `places` among those that were rotated, each as a sum over its chunk."""
    k = value.levels.size
    signs = coins(value.seed, k)
    halves = RandomStream(value.seed, 1).words(-(-k // 16)).astype("<u4").view("<u2")
    found = []
    for place in places.tolist():
        chunk, at, row = place_in(k, place)
        levels = value.levels[at].astype(int)
        if value.bits <= 1:
            values = 2.0 * levels - 1
        else:
            widths = math.floor(value.bits) + (halves[at // 8] < int(value.bits % 1 * 65536))
            both = zip(levels.tolist(), widths.tolist(), strict=True)
            values = np.array([centroids(bits)[level] for level, bits in both])
        total = float(sylvester_row(row, at.size) @ values) * 2.0 ** -(int(math.log2(at.size)) // 2)
        found.append((-1 if signs[place] else 1) * total * float(value.scales[chunk]))
    return found


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
    # H (1, -1) = (0, 2), times 2^0 and the scale 3; of two signs the seed tells
    flips = [-1.0 if flip else 1.0 for flip in coins(5, 2)]
    value = Rotated(2, 5, 1.0, np.array([3], np.float32), np.array([1, 0], np.uint8))
    assert value.dense().tolist() == [0.0, 6.0 * flips[1]]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_entries_are_those_that_a_slow_reader_finds(rate: float, n: int) -> None:
    value = symbols(rate, n)
    k = value.levels.size
    places = np.unique([0, k // 2, k - 1, *np.random.default_rng(n).integers(0, k, 30)])
    indices = value.indices
    dense = value.dense() if indices is None else value.dense()[indices]
    assert np.allclose(dense[places], some_entries(value, places), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_adding_is_adding_the_dense_vector(rate: float, n: int) -> None:
    value = symbols(rate, n)
    start = np.random.default_rng(n).standard_normal(n)
    for weight in (1.0, -1.0, 0.3):
        whole = start.copy()
        value.add_to(whole, weight)
        assert np.array_equal(whole, start + weight * value.dense().astype(np.float64))
    small = start.astype(np.float32)
    value.add_to(small, -1.0)
    assert np.array_equal(small, start.astype(np.float32) - value.dense())


@pytest.mark.parametrize("rate", [0.999, 0.5, 1e-9])
def test_less_than_a_bit_leaves_the_other_entries_out(rate: float) -> None:
    value = symbols(rate, 1000)
    sparse = value.sparse()
    assert sparse is not None
    assert sparse.indices.size == max(1, round(float(np.float32(rate)) * 1000))
    assert np.array_equal(sparse.dense(), value.dense())
    assert symbols(1.0, 1000).sparse() is None


def test_kept_entries_are_rounded_half_up_and_at_least_one() -> None:
    assert [rotated_count(0.5, n) for n in (1, 2, 3, 5)] == [1, 1, 2, 3]
    assert rotated_count(1e-30, 1000) == 1
    assert rotated_count(1.0, 7) == rotated_count(3.5, 7) == 7


@pytest.mark.parametrize("rate", [1.0, 2.0, 2.5, 4.0])
def test_no_levels_lead_beyond_float32(rate: float) -> None:
    """The worst ones: a row of the matrix, at the largest scale."""
    for length in (1, 2, 64, 2048, MAX_CHUNK):
        row = sylvester_row(length // 3, length)
        worst = (row > 0) * (2 ** math.floor(rate) - 1)
        scales = np.full(1, np.nextafter(MAX_SCALE, np.float32(0)))
        values: Vector = Rotated(length, 0, rate, scales, worst.astype(np.uint8)).dense()
        assert np.abs(values).max() <= MAX_FLOAT32
