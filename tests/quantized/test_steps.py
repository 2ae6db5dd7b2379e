"""Steps on the grid: exact multiples, and magnitudes that become powers of two."""

import numpy as np
import pytest

from fedcomp.quantized import MAX_STEPS, UNIT, Dense, Sparse, Steps, Ternary, counts_of, onto_grid, steps_in

INDICES, SIGNS = np.array([1, 4]), np.array([True, False])


@pytest.mark.parametrize(
    ("magnitude", "expected"),
    [
        (0.5, 0.5),
        (0.7, 0.5),
        (0.72, 1.0),
        (0.35, 0.25),
        (0.36, 0.5),
        (UNIT, UNIT),
        (1.4 * UNIT, UNIT),
        (1.0, 1.0),
        (50.0, 64.0),
    ],
)
def test_a_magnitude_becomes_the_nearest_power_of_two(magnitude: float, expected: float) -> None:
    moved = onto_grid(Ternary(5, INDICES, SIGNS, np.float32(magnitude)))
    assert (moved.magnitude, moved.indices is INDICES, moved.negative is SIGNS) == (expected, True, True)
    assert counts_of(moved.sparse().values) is not None


@pytest.mark.parametrize("magnitude", [0.6 * UNIT, 92.0, 1e-30, 3e38])
def test_a_magnitude_too_small_or_too_large_for_the_grid_stays(magnitude: float) -> None:
    ternary = Ternary(5, INDICES, SIGNS, np.float32(magnitude))
    assert onto_grid(ternary) is ternary


def test_other_vectors_stay() -> None:
    dense = Dense(np.ones(3, np.float32))
    assert onto_grid(dense) is dense
    assert steps_in(dense) is None


@pytest.mark.parametrize("value", [UNIT / 2, 1.5 * UNIT, 128.0, -200.0, 3e38])
def test_a_value_that_is_no_multiple_or_too_large_has_no_count(value: float) -> None:
    assert counts_of(np.array([UNIT, value], np.float32)) is None
    assert steps_in(Sparse(5, INDICES, np.array([UNIT, value], np.float32))) is None


def test_counts_and_values_belong_together() -> None:
    values = np.array([UNIT, -3 * UNIT, 127.5], np.float32)
    counts = counts_of(values)
    assert counts is not None
    assert counts.tolist() == [1, -3, 2139095040]
    steps = Steps(7, np.array([0, 3, 6]), counts)
    assert steps.sparse().values.tolist() == values.tolist()
    assert steps_in(steps) is steps
    assert Steps(7, np.array([2]), np.array([MAX_STEPS], np.int32)).dense().tolist() == [0, 0, 128, 0, 0, 0, 0]
