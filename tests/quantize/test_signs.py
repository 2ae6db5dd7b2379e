"""Signs with one magnitude a tensor, one bit with the means of either side, and TernGrad's trits."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.entropy import LevelsCode
from fedcomp.quantize import OneBit, Signs, TernGrad, error_bound, errors, squared_error
from fedcomp.quantized import LINEAR, Levels
from tests.quantize.laws import check_mean

SHAPES = ((2, 2), (), (0, 7), (3,))
VALUE = np.array([1, -3, 0, 4, -0.5, 0, -0.0, 0], np.float32)
DRAWS = 2000


def test_the_magnitude_is_the_mean_over_all_entries_of_a_tensor_zeros_included() -> None:
    quantized = Signs().quantize(CompensatedUpdate(VALUE, context=EncodeContext(shapes=SHAPES)))
    assert quantized.levels.tolist() == [2, 0, 1, 2, 0, 1, 1, 1]
    assert quantized.scales.tolist() == [2, 0.5, 0]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (LINEAR, 3, (4, 1, 3))
    assert quantized.dense().tolist() == [2, -2, 0, 2, -0.5, 0, 0, 0]


def test_the_step_is_the_magnitude() -> None:
    quantized = Signs(0.25).quantize(CompensatedUpdate(VALUE, context=EncodeContext(shapes=SHAPES)))
    assert quantized.scales.tolist() == [0.25] * 3
    assert quantized.dense().tolist() == [0.25, -0.25, 0, 0.25, -0.25, 0, 0, 0]


def test_a_coin_breaks_ties_and_two_levels_are_left() -> None:
    vector = np.repeat(np.array([3, -2, 0, -0.0], np.float32), 10_000)
    first, again, other = (
        Signs(0.25, "coin").quantize(CompensatedUpdate(vector, context=EncodeContext(seed))) for seed in (1, 1, 2)
    )
    assert (first.scale.count, np.unique(first.dense()).tolist()) == (2, [-0.25, 0.25])
    assert (first.dense()[:10_000] == 0.25).all()
    assert (first.dense()[10_000:20_000] == -0.25).all()
    tosses = first.dense()[20_000:]
    assert abs(tosses.sum()) < 4 * 0.25 * np.sqrt(tosses.size), "a fair coin, four standard errors"
    assert np.array_equal(first.levels, again.levels)
    assert not np.array_equal(first.levels, other.levels)


@pytest.mark.parametrize("value", [2.0**-149, 2.0**-126, MAX_FLOAT32])
def test_the_ends_of_float32_are_their_own_mean(value: float) -> None:
    vector = np.tile(np.array([value, -value], np.float32), 2 * BLOCK_ENTRIES)
    assert np.array_equal(Signs().quantize(CompensatedUpdate(vector)).dense(), vector)


@pytest.mark.parametrize(
    ("largest", "scale"),
    [(1.0, 1), (1.5, 2), (0.5, 0.5), (0.0, 0), (2.0**-149, 2.0**-149), (MAX_FLOAT32, 2.0**127), (2.0**127, 2.0**127)],
)
def test_terngrads_scale_is_rounded_up_to_a_power_of_two(largest: float, scale: float) -> None:
    value = CompensatedUpdate(np.array([largest, -largest, 0], np.float32))
    quantized = TernGrad(0, "power").quantize(value)
    assert quantized.scales.tolist() == [scale]
    assert np.isfinite(quantized.dense()).all()


def test_a_contracting_terngrad_has_no_clip() -> None:
    with pytest.raises(ValueError, match="clip is 2.5"):
        TernGrad(2.5, shrunk=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("entries", [[1.1], [1.01] * 3, [1.0] + [0.2] * 7, [1.01] + [0.1] * 30, [1.01, *[0.05] * 100]])
@pytest.mark.parametrize("scaler", ["own", "power"])
def test_terngrads_error_is_as_declared_where_it_is_largest(scaler: str, entries: list[float]) -> None:
    vector, seeds = np.array(entries, np.float32), 200
    scale = max(entries) if scaler == "own" else 2.0 ** (max(entries) > 1)
    expected = scale * np.abs(vector).sum() / np.square(vector).sum()  # 1 + the variance for this very vector
    plain, shrunk = TernGrad(0, scaler), TernGrad(0, scaler, shrunk=True)
    for quantizer, exact in ((plain, expected - 1), (shrunk, 1 - 1 / expected)):
        found = errors(quantizer, vector, seeds)[0].mean()
        assert found == pytest.approx(exact, rel=0.25, abs=1e-6)
        assert exact <= squared_error(quantizer.error_bound(vector.size)) * (1 + 1e-6)
    for quantizer in (plain, TernGrad(2.5, scaler), TernGrad(0.5, scaler)):
        form = quantizer.contracting()
        bound = squared_error(error_bound(form, vector.size))
        assert errors(form, vector, seeds)[0].mean() <= bound * 1.05 + 1e-6


def test_it_is_a_contraction_by_the_papers_constant() -> None:
    # Karimireddy et al.: ||C(v) - v||^2 = (1 - ||v||_1^2 / (d ||v||_2^2)) ||v||^2, where no entry is zero
    vector = np.random.default_rng(0).standard_t(3, 10_000).astype(np.float32)
    wide = vector.astype(np.float64)
    square = np.square(wide).sum()
    error = np.square(Signs().quantize(CompensatedUpdate(vector)).dense() - wide).sum()
    assert error / square == pytest.approx(1 - np.abs(wide).sum() ** 2 / (wide.size * square), rel=1e-6)


def test_entries_become_the_mean_of_their_side_and_zero_is_above() -> None:
    value = np.array([1, 3, -2, -6, 2, 0, 5, -4, -8, 0], np.float32)
    quantized = OneBit().quantize(
        CompensatedUpdate(value, context=EncodeContext(shapes=((4,), (2, 1), (), (0,), (2,), ())))
    )
    assert quantized.levels[:4].tolist() == [1, 1, 0, 0]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (LINEAR, 2, (4, 2, 1, 2, 1))
    assert quantized.dense().tolist() == [2, 2, -4, -4, 1, 1, 5, -6, -6, 0]


def test_a_tensor_of_one_sign_has_one_value() -> None:
    for value in (np.array([1, 2, 6], np.float32), -np.array([1, 2, 6], np.float32)):
        quantized = OneBit().quantize(CompensatedUpdate(value))
        assert quantized.scales.tolist() == [0]
        assert quantized.dense().tolist() == [value.mean()] * 3


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_two_values_have_the_least_error(scale: float) -> None:
    value = (np.random.default_rng(0).standard_normal(3 * BLOCK_ENTRIES) * scale).astype(np.float32)
    value += np.float32(0.3 * scale)
    dense = OneBit().quantize(CompensatedUpdate(value)).dense()
    for side in (value >= 0, value < 0):
        assert np.unique(dense[side]).size == 1
        assert dense[side][0] == pytest.approx(value[side].mean(dtype=np.float64), rel=1e-6)


def test_the_ends_of_float32_are_their_own_means() -> None:
    for high, low in ((MAX_FLOAT32, -MAX_FLOAT32), (MAX_FLOAT32, 0.0), (2.0**-149, -(2.0**-149)), (2.0**-148, 0.0)):
        value = np.where(np.arange(100_000) % 3 == 0, high, low).astype(np.float32)
        found = OneBit().quantize(CompensatedUpdate(value)).dense()
        expected = np.where(value >= 0, value[value >= 0].mean(dtype=np.float64), low)
        assert np.allclose(found, expected, rtol=1e-6, atol=2.0**-149)


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


@pytest.mark.parametrize("scaler", ["own", "power"])
@pytest.mark.parametrize(("clip", "denormal"), [(2.5, True), (1e-46, False), (1e-300, False)])
def test_a_clip_below_the_least_float32_leaves_zeros_and_other_tensors_alone(
    clip: float, denormal: bool, scaler: str
) -> None:
    vector = np.random.default_rng(0).choice([-1, 1], 1000).astype(np.float32)
    vector[600:] = 3
    if denormal:
        vector[:600] = np.where(np.arange(600) == 300, 2.0**-149, 0)
    context = EncodeContext(1, shapes=((20, 30), (400,)))
    with np.errstate(all="raise", under="ignore"):
        quantized = TernGrad(clip, scaler).quantize(CompensatedUpdate(vector, context=context))
    assert quantized.scales.tolist() == [0, 3 if scaler == "own" else 4]
    assert (quantized.levels[:600] == 1).all(), "the middle level"
    assert quantized.levels[600:].min() >= 1
    code = LevelsCode()
    assert np.array_equal(code.decode(code.encode(quantized), n=1000).levels, quantized.levels)


def test_a_clip_far_below_the_entries_sends_signs() -> None:
    vector = np.random.default_rng(0).choice([-1, 1], 1000).astype(np.float32)
    with np.errstate(all="raise", under="ignore"):
        found = encode(1e-44, vector).dense()  # the quotients are beyond float32
    assert np.array_equal(found, vector * np.float32(1e-44))


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
