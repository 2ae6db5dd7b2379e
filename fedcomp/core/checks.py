"""Checks of settings: each raises `ValueError` with what was found and what is needed."""

import math
import sys
from collections.abc import Collection

from fedcomp.core.types import to_python

MAX_FLOAT = sys.float_info.max
"""Integers may be larger, and no float is equal to them."""


def check_range(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    what: str = "a number",
) -> None:
    """Refuse a `value` that is not a finite number from `least`, or above `above`, to `most`; `what` describes the setting."""
    number = to_python(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        number = math.nan
    if least <= number <= most and number > above and abs(number) <= MAX_FLOAT:
        return
    low = f"above {above:g}" if above > -math.inf else f"at least {least:g}" if least > -math.inf else ""
    high = f"at most {most:g}" if most < math.inf else ""
    raise ValueError(f"{name} is {value!r}; it is {what}, {' and '.join(filter(None, (low, high))) or 'finite'}")


def check_int(name: str, value: object, least: int, most: int, what: str = "a whole number") -> None:
    """Refuse a `value` that is not a whole number from `least` to `most`; `what` describes the setting."""
    number = to_python(value)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"{name} is {value!r}; it is {what}, {least} to {most}")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a `value` that is none of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, choices))}")


def check_bool(name: str, value: object) -> None:
    """Refuse a `value` that is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it is True or False")
