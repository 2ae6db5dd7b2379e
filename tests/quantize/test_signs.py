"""Signs with one magnitude a tensor."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext
from fedcomp.quantize import Signs
from fedcomp.quantized import LINEAR

SHAPES = ((2, 2), (), (0, 7), (3,))
VALUE = np.array([1, -3, 0, 4, -0.5, 0, -0.0, 0], np.float32)


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


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="1e-38"):
        Signs(1e-38)
    with pytest.raises(ValueError, match="'plus'.*'zero', 'coin'"):
        Signs(1, "plus")


@pytest.mark.parametrize("value", [2.0**-149, 2.0**-126, MAX_FLOAT32])
def test_the_ends_of_float32_are_their_own_mean(value: float) -> None:
    vector = np.tile(np.array([value, -value], np.float32), 2 * BLOCK_ENTRIES)
    assert np.array_equal(Signs().quantize(CompensatedUpdate(vector)).dense(), vector)


def test_it_is_a_contraction_by_the_papers_constant() -> None:
    # Karimireddy et al.: ||C(v) - v||^2 = (1 - ||v||_1^2 / (d ||v||_2^2)) ||v||^2, where no entry is zero
    vector = np.random.default_rng(0).standard_t(3, 10_000).astype(np.float32)
    wide = vector.astype(np.float64)
    square = np.square(wide).sum()
    error = np.square(Signs().quantize(CompensatedUpdate(vector)).dense() - wide).sum()
    assert error / square == pytest.approx(1 - np.abs(wide).sum() ** 2 / (wide.size * square), rel=1e-6)
