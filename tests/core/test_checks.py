"""What the checks of settings refuse."""

import math

import numpy as np
import pytest

import fedcomp
from fedcomp.core import check_int, check_range


@pytest.mark.parametrize("value", [0.5, 1, 1.0, np.float32(0.25), np.int64(1), 5e-324])
def test_a_number_in_range_passes(value: object) -> None:
    check_range("density", value, above=0, most=1)


@pytest.mark.parametrize(
    "value",
    [0, -0.0, 1.01, math.nan, math.inf, -math.inf, 10**400, -(10**400), True, "1", None, 1j, [1], np.float32("nan")],
)
def test_a_value_that_is_no_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="density is .* fraction kept, above 0 and at most 1"):
        check_range("density", value, above=0, most=1, what="the fraction kept")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_without_a_range_any_number_that_a_float_holds_passes(value: object) -> None:
    check_range("tolerance", 1.7e308)
    with pytest.raises(ValueError, match="tolerance is "):
        check_range("tolerance", value)


@pytest.mark.parametrize("value", [0, 9, 10**400, -(10**400), 1.0, True, "1"])
def test_a_value_that_is_no_whole_number_in_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="bits is .* 1 to 8"):
        check_int("bits", value, 1, 8)


@pytest.mark.parametrize("name", fedcomp.METHODS)
@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e999", "-1e999"])
def test_no_method_takes_a_number_beyond_float64(name: str, number: str) -> None:
    with pytest.raises(
        ValueError, match=f"{number[:9]}|inf|takes 0 positional arguments|the settings of {name} are: none"
    ):
        fedcomp.parse(f"{name}({number})")
