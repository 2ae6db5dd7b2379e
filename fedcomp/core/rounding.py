"""Rounding a fraction of a number to a whole number."""

import math

ROUNDING = 2.0**-50
"""Relative error of ``fraction * n``, in float64, that `ceil_fraction` forgives: four times what two roundings can reach."""


def ceil_fraction(fraction: float, n: int) -> int:
    """Return ceil(fraction n) for the fraction that is meant: 7 for 0.07 of 100, which is 7.000000000000001 in float64."""
    return math.ceil(fraction * n * (1 - ROUNDING))
