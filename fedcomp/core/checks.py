"""Settings out of range, refused in one sentence that names the setting, the value and the range."""

import math
import sys
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

MAX_FLOAT = sys.float_info.max
"""Integers may be larger, and no float is equal to them."""


def check_range(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    what: str = "",
) -> None:
    """Refuse a `value` that is no finite number from `least`, or above `above`, to `most`; `what` says what it is."""
    if not _number(value, Real) or not (least <= value <= most and value > above and abs(value) <= MAX_FLOAT):  # type: ignore
        low = f"above {above:g}" if above > -math.inf else f"at least {least:g}" if least > -math.inf else ""
        high = f"at most {most:g}" if most < math.inf else ""
        kind = what or "a number"
        raise ValueError(f"{name} is {value!r}; it is {kind}, {' and '.join(filter(None, (low, high))) or 'finite'}")


def check_int(name: str, value: object, least: int, most: int, what: str = "") -> None:
    """Refuse a `value` that is no whole number from `least` to `most`."""
    if not _number(value, Integral) or not least <= value <= most:  # type: ignore[operator]
        raise ValueError(f"{name} is {value!r}; it is {what or 'a whole number'}, {least} to {most}")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a `value` that is none of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, choices))}")


def check_bool(name: str, value: object) -> None:
    """Refuse a `value` that is neither true nor false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it is True or False")


def _number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
