"""TernGrad: scale, clip and trits by hand, the mean, and the range of a sum of workers."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import TernGrad
from fedcomp.quantized import LINEAR, Levels
from tests.quantize.laws import check_mean

DRAWS = 2000


def encode(clip: float, value: Vector, shapes: tuple[tuple[int, ...], ...] = (), seed: int = 0) -> Levels:
    return TernGrad(clip).quantize(CompensatedUpdate(value, context=EncodeContext(seed, shapes=shapes)))


def test_the_scale_of_a_tensor_is_its_largest_magnitude() -> None:
    quantized = encode(0, np.array([2, -2, 0, -3, 0, 3, 0, 0], np.float32), ((3,), (0,), (1, 3), (2,)))
    assert quantized.levels.tolist() == [2, 0, 1, 0, 1, 2, 1, 1]
    assert quantized.scales.tolist() == [2, 3, 0]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (LINEAR, 3, (3, 3, 2))
    assert quantized.dense().tolist() == [2, -2, 0, -3, 0, 3, 0, 0]


def test_the_clip_counts_standard_deviations_with_zeros_included() -> None:
    # 8 zeros, 1 and -9: mean -0.8, mean square 8.2, variance 7.56.
    value = np.array([0, 0, 0, 0, 1, -9, 0, 0, 0, 0], np.float32)
    assert encode(2.5, value).scales[0] == np.float32(2.5 * np.sqrt(7.56))
    assert encode(2.5, value).levels[5] == 0  # beyond the clip: always -s
    assert encode(4, value).scales[0] == 9  # the smaller of the two
    assert encode(0, value).scales[0] == 9


def test_equal_entries_are_not_clipped() -> None:
    for value in (0.1, -3.0, 1e-42, MAX_FLOAT32):
        for n in (1, 1000, 3 * BLOCK_ENTRIES):
            found = encode(2.5, np.full(n, value, np.float32)).dense()
            assert (found == np.float32(value)).all()


def test_the_deviation_of_huge_values_is_finite() -> None:
    value = np.where(np.random.default_rng(0).random(1000) < 0.01, MAX_FLOAT32, 1e30).astype(np.float32)
    assert encode(2.5, value).scales[0] == np.float32(2.5 * value.astype(np.float64).std())


@pytest.mark.parametrize("clip", [0, 2.5, 1])
@pytest.mark.parametrize("scale", [1.0, 1e37, 1e-36])
def test_the_mean_over_draws_is_the_clipped_tensor(clip: float, scale: float) -> None:
    tensor = (np.random.default_rng(5).standard_normal(40) * scale).astype(np.float32)
    limit = clip * tensor.astype(np.float64).std() if clip else np.inf
    quantized = encode(clip, np.tile(tensor, DRAWS), ((5, 8),) * DRAWS)
    values = quantized.scale.values() * quantized.scales[0]
    check_mean(quantized.dense().reshape(DRAWS, 40), np.clip(tensor, -limit, limit).astype(np.float32), values)
    assert (np.abs(tensor) > limit).any() == bool(clip == 1)


def test_a_sum_of_workers_is_between_minus_their_number_and_their_number() -> None:
    workers, n = 8, 20_000
    rng = np.random.default_rng(6)
    mean = rng.standard_normal(n, np.float32)
    total = np.zeros(n, np.int64)
    for worker in range(workers):
        quantized = encode(2.5, mean + rng.standard_normal(n, np.float32), seed=worker)
        total += quantized.levels.astype(np.int64) - 1
        assert set(np.unique(quantized.dense()).tolist()) == {-quantized.scales[0], 0, quantized.scales[0]}
    assert set(np.unique(total).tolist()) <= set(range(-workers, workers + 1))
    assert np.unique(total).size > workers


def test_workers_of_different_seeds_draw_independently() -> None:
    value = np.full(10_000, 0.5, np.float32)
    value[0] = 1
    one, other = (encode(0, value, seed=seed).levels[1:] > 1 for seed in (1, 2))
    assert abs(np.mean(one == other) - 0.5) <= 4 * 0.5 / np.sqrt(one.size)
