"""Rounding a fraction of a number to a whole number."""

import math


def ceil_fraction(fraction: float, n: int) -> int:
    """Return ceil(fraction n); m if `fraction` is the float64 nearest m / n.  So 0.07 of 100 is 7, not 8.

    Examples:
        >>> ceil_fraction(0.07, 100), math.ceil(0.07 * 100)
        (7, 8)
    """
    m = math.ceil(fraction * n)
    return m - 1 if n and (m - 1) / n == fraction else m
