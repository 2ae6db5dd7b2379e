"""Whether a mean is above 0 by more than chance."""

import numpy as np
import pytest

from fedcomp.flower.server.links.chance import is_surely_positive


@pytest.mark.parametrize(("mean", "found"), [(0.29, False), (0.31, True), (-0.31, False)])
def test_a_mean_of_three_standard_errors_is_no_chance(mean: float, found: bool) -> None:
    """A hundred numbers with the standard deviation 1."""
    numbers = mean + np.tile([-1.0, 1.0], 50)
    assert is_surely_positive(100, float(numbers.sum()), float(numbers @ numbers)) is found


def test_equal_numbers_are_no_chance() -> None:
    assert is_surely_positive(3, 0.3, 0.03)
    assert not is_surely_positive(3, 0.0, 0.0)
