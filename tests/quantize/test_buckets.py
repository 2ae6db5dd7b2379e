"""Helpers of the dense quantizers: buckets, tensors, norms, ranges, and rounding at random."""

import numpy as np
import pytest

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, EncodeContext, RandomStream
from fedcomp.quantize.buckets import (
    bucket_rows,
    midpoints,
    norms,
    ratios,
    round_at_random,
    round_exponents,
    rounding_stream,
    signed,
    tensor_blocks,
)

LOWEST, HIGHEST = np.uint32(0), np.uint32(2**32 - 1)


def test_seven_entries_fold_into_buckets_of_three_and_one_is_left() -> None:
    found = [
        (entries, buckets, rows.tolist())
        for entries, buckets, rows in bucket_rows(CompensatedUpdate(np.arange(7, dtype=np.float32)), 3)
    ]
    assert found == [
        (slice(0, 6), slice(0, 2), [[0, 1, 2], [3, 4, 5]]),
        (slice(6, 7), slice(2, 3), [[6]]),
    ]


@pytest.mark.parametrize("bucket", [1, 3, 512, 1000, 1 << 20])
@pytest.mark.parametrize("n", [1, 511, 512, 513, 100_003])
def test_buckets_hold_every_entry_once_and_in_order(bucket: int, n: int) -> None:
    vector = np.arange(n, dtype=np.float32)
    entry = row = 0
    for entries, buckets, rows in bucket_rows(CompensatedUpdate(vector), bucket):
        assert (entries.start, buckets.start) == (entry, row)
        assert rows.ravel().tolist() == vector[entries].tolist()
        assert rows.shape == (buckets.stop - buckets.start, min(bucket, n - entry))
        entry, row = entries.stop, buckets.stop
    assert (entry, row) == (n, -(-n // bucket))


def test_blocks_are_cut_at_the_ends_of_tensors_and_tensors_at_the_ends_of_blocks() -> None:
    n = 100_000
    vector = np.arange(n, dtype=np.float32)
    context = EncodeContext(shapes=((2, 3), (0,), (), (70_000,), (n - 70_007,)))
    found = [
        (tensor, entries.start, entries.stop, part[0], part[-1])
        for tensor, entries, part in tensor_blocks(CompensatedUpdate(vector, context=context))
    ]
    assert found == [
        (0, 0, 6, 0, 5),
        (1, 6, 7, 6, 6),
        (2, 7, 32768, 7, 32767),
        (2, 32768, 65536, 32768, 65535),
        (2, 65536, 70007, 65536, 70006),
        (3, 70007, 98304, 70007, 98303),
        (3, 98304, 100000, 98304, 99999),
    ]


def test_the_norms_of_3_and_minus_4_are_4_and_5() -> None:
    rows = np.array([[3, -4], [0, 0]], np.float32)
    assert norms(rows, "max").tolist() == [4, 0]
    assert norms(rows, "l2").tolist() == [5, 0]


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_no_entry_exceeds_a_norm_and_no_norm_float32(norm: str) -> None:
    rng = np.random.default_rng(0)
    for scale in (2.0**-149, 1e-40, 1e-20, 1.0, 1e19, 3.2e38):
        rows = (rng.uniform(-1, 1, (500, 9)) * rng.choice([0.0, 0.001, 1.0], (500, 9)) * scale).astype(np.float32)
        found = norms(rows, norm)
        assert np.isfinite(found).all()
        assert (np.abs(rows) <= found[:, None]).all()
        assert (np.abs(ratios(rows, found)) <= 1).all()
    assert norms(np.full((1, 4), MAX_FLOAT32, np.float32), norm).tolist() == [MAX_FLOAT32]


def test_a_ratio_to_a_denormal_scale_is_exact_and_to_a_scale_of_zero_is_zero() -> None:
    rows = np.array([[3, -1, 0], [0, 0, 0]], np.float32) * np.float32(2.0**-149)
    assert ratios(rows, norms(rows, "max")).tolist() == [1, np.float32(-1 / 3), 0, 0, 0, 0]


def test_middle_and_half_width_give_the_range_back() -> None:
    offsets, scales = midpoints(np.array([-1.0, 2, -3]), np.array([3.0, 2, -1]))
    assert offsets.tolist() == [1, 2, -2]
    assert scales.tolist() == [2, 0, 1]


def test_no_range_within_float32_leads_beyond_it() -> None:
    rng = np.random.default_rng(1)
    ends = (rng.uniform(-1, 1, (2, 20_000)) * MAX_FLOAT32).astype(np.float32)
    ends[1, ::3] = MAX_FLOAT32
    ends[0, 1::3] = -MAX_FLOAT32
    low, high = np.sort(ends, axis=0).astype(np.float64)
    offsets, scales = midpoints(low, high)
    with np.errstate(all="raise"):
        above, below = offsets + scales, offsets - scales
    assert np.allclose(above, high, rtol=0, atol=MAX_FLOAT32 * 2**-23)
    assert np.allclose(below, low, rtol=0, atol=MAX_FLOAT32 * 2**-23)


@pytest.mark.parametrize("levels", [1, 2, 7, 127, 128, 255])
def test_no_draw_leaves_the_neighbours_of_a_ratio_and_the_ends_are_exact(levels: int) -> None:
    rng = np.random.default_rng(levels)
    exact = np.array([0.0, -0.0, 1.0, -1.0])
    values = np.concatenate([exact, rng.uniform(-1, 1, 10_000), [1 - 2**-24, 2**-149, -(2**-149)]]).astype(np.float32)
    places = values.astype(np.float64) * levels
    for word in (LOWEST, HIGHEST):
        found = round_at_random(values, levels, np.full(values.size, word, np.uint32))
        assert found[:4].tolist() == [0, 0, levels, -levels]
        assert (np.abs(found) <= levels).all()
        assert (found * np.sign(values) >= 0).all()
        assert (np.abs(found - places) < 1 + 1e-5).all()


@pytest.mark.parametrize("levels", [1, 7, 255])
def test_the_fraction_of_draws_that_round_up_is_the_ratio(levels: int) -> None:
    words = (np.arange(2**16, dtype=np.uint32) << np.uint32(16)) + np.uint32(2**15)  # evenly spread
    for ratio in (0.3, -0.3, 0.9, 1e-4, -1.0):
        found = round_at_random(np.full(words.size, ratio, np.float32), levels, words.copy())
        assert found.mean() == pytest.approx(ratio * levels, abs=2**-16)


@pytest.mark.parametrize("mantissa", [0.0, 0.25, 0.5, 0.75])
def test_an_exponent_rounds_up_with_the_probability_of_the_mantissa(mantissa: float) -> None:
    words = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
    magnitudes = np.full(words.size, (1 + mantissa) * 2.0**5, np.float32).view(np.int32)
    found = round_exponents(magnitudes, words)
    assert set(found.tolist()) <= {132, 133}  # 5 + 127, and the next
    assert (found == 133).mean() == mantissa


def test_magnitudes_take_the_signs_of_entries() -> None:
    like = np.array([1, -1, 0, -0.0, -2], np.float32)
    assert signed(np.array([3, 4, 0, 0, 5], np.int32), like).tolist() == [3, -4, 0, 0, -5]


def test_rounding_has_a_random_stream_of_its_own() -> None:
    assert rounding_stream(EncodeContext(3)).words(8).tolist() == rounding_stream(EncodeContext(3)).words(8).tolist()
    assert rounding_stream(EncodeContext(3)).words(8).tolist() != RandomStream(3).words(8).tolist()
