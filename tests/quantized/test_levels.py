"""Levels: values by hand, scales shared by groups, and any number of blocks."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.quantized import EXPONENTS, LINEAR, POWERS, Groups, Levels, Scale, geometric, group_count


def test_the_values_of_the_levels_are_those_of_the_papers() -> None:
    assert Scale(LINEAR, 2).values().tolist() == [-1, 1]
    assert Scale(LINEAR, 3).values().tolist() == [-1, 0, 1]
    assert Scale(LINEAR, 5).values().tolist() == [-1, -0.5, 0, 0.5, 1]
    assert Scale(LINEAR, 16).values().tolist() == [
        float(np.float32(2 * level - 15) / np.float32(15)) for level in range(16)
    ]
    assert Scale(POWERS, 3).values().tolist() == [-1, 0, 1]
    assert Scale(POWERS, 7).values().tolist() == [-1, -0.5, -0.25, 0, 0.25, 0.5, 1]


def test_exponents_are_all_normal_powers_of_two_and_zero() -> None:
    values = Scale(EXPONENTS, 509).values()
    assert values[254] == 0
    assert values[255:].tolist() == [2.0**exponent for exponent in range(-126, 128)]
    assert (values[:254] == -values[:254:-1]).all()


@pytest.mark.parametrize("scale", [Scale(LINEAR, 511), Scale(POWERS, 129), Scale(EXPONENTS, 509)])
def test_values_ascend_and_are_read_only(scale: Scale) -> None:
    assert (np.diff(scale.values()) > 0).all()
    assert (scale.values() == -scale.values()[::-1]).all()
    with pytest.raises(ValueError, match="read-only"):
        scale.values()[0] = 3


def test_an_entry_is_its_level_times_the_scale_plus_the_offset() -> None:
    levels = np.array([0, 1, 2, 2, 0], np.uint8)
    scales, offsets = np.array([2, 8, 0.5], np.float32), np.array([1, 0, -1], np.float32)
    assert Levels(levels, Scale(LINEAR, 3), scales, None, 2).dense().tolist() == [-2, 0, 8, 8, -0.5]
    assert Levels(levels, Scale(LINEAR, 3), scales, offsets, 2).dense().tolist() == [-1, 1, 8, 8, -1.5]
    assert Levels(levels, Scale(LINEAR, 3), scales, None, (1, 3, 1)).dense().tolist() == [-2, 0, 8, 8, -0.5]


@pytest.mark.parametrize(("groups", "count"), [(1, 10), (3, 4), (10, 1), (11, 1), ((4, 6), 2)])
def test_the_last_bucket_holds_what_is_left(groups: Groups, count: int) -> None:
    assert group_count(10, groups) == count


@pytest.mark.parametrize(
    "groups",
    [
        1,
        512,
        1000,
        BLOCK_ENTRIES - 1,
        BLOCK_ENTRIES,
        BLOCK_ENTRIES + 1,
        3 * BLOCK_ENTRIES,
        (5, 2 * BLOCK_ENTRIES + 3, 1, BLOCK_ENTRIES - 7),
        (3 * BLOCK_ENTRIES + 2,),
    ],
)
@pytest.mark.parametrize("shifted", [False, True])
def test_the_size_of_a_block_makes_no_difference(groups: Groups, shifted: bool) -> None:
    rng = np.random.default_rng(0)
    n = 3 * BLOCK_ENTRIES + 2
    count = group_count(n, groups)
    scales = rng.uniform(0, 2, count).astype(np.float32)
    offsets = rng.standard_normal(count, np.float32) if shifted else None
    quantized = Levels(rng.integers(0, 15, n).astype(np.uint8), Scale(LINEAR, 15), scales, offsets, groups)
    sizes = [groups] * count if isinstance(groups, int) else list(groups)
    group = np.repeat(np.arange(count), sizes)[:n]
    expected = Scale(LINEAR, 15).values()[quantized.levels] * scales[group]
    if offsets is not None:
        expected += offsets[group]
    assert quantized.dense().tobytes() == expected.tobytes()
    assert all(values.size <= BLOCK_ENTRIES for _, values in quantized.blocks())
    vector = np.ones(n)
    quantized.add_to(vector, 0.25)
    assert (vector == 1 + 0.25 * expected.astype(np.float64)).all()


def test_each_magnitude_of_a_series_is_the_last_one_divided() -> None:
    assert geometric(np.float32(3), 2, 4).tolist() == [3, 1.5, 0.75, 0.375]
    assert geometric(np.float32(1), 3, 2).tolist() == [1, float(np.float32(1 / 3))]
