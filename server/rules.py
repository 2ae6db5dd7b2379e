"""What a setting may be: each rule returns the value to keep, or says in a `ValueError` what is needed."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Rule(Protocol):
    """What a setting may be."""

    def __call__(self, value: object, /) -> object:
        """Return the value to keep; raise `ValueError` saying what is possible."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `least` up."""

    least: int = 0

    def __call__(self, value: object, /) -> int:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            raise ValueError(f"a whole number, {self.least} or more, is needed")
        return value


@dataclass(frozen=True, slots=True)
class Real:
    """A number above `above`, or from `least` up, to `most`, or below `below`."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def __call__(self, value: object, /) -> float:
        """Return the number as a float."""
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not (good and self.least <= value <= self.most and self.above < value < self.below):  # type: ignore[operator]
            low = f"above {self.above:g}" if math.isfinite(self.above) else f"{self.least:g} or more"
            high = f" and at most {self.most:g}" if math.isfinite(self.most) else ""
            high = f" and below {self.below:g}" if math.isfinite(self.below) else high
            raise ValueError(f"a number {low}{high} is needed")
        return float(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Switch:
    """True or false."""

    def __call__(self, value: object, /) -> bool:
        """Return the value."""
        if not isinstance(value, bool):
            raise ValueError("true or false is needed")
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A text that matches `pattern`; `needed` says so in words."""

    pattern: str = ".*"
    needed: str = "a text"

    def __call__(self, value: object, /) -> str:
        """Return the text."""
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise ValueError(f"{self.needed} is needed")
        return value


@dataclass(frozen=True, slots=True)
class Call:
    """A text ``name(setting=value)`` that `read` accepts."""

    read: Callable[[str], object]

    def __call__(self, value: object, /) -> str:
        """Return the text."""
        if not isinstance(value, str):
            raise ValueError("a text of the form name(setting=value) is needed")
        self.read(value)
        return value
