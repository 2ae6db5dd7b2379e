"""Fractions of a number of entries, rounded up."""

import math
from fractions import Fraction

import pytest

from fedcomp.core import ceil_fraction


def test_seven_hundredths_of_a_hundred_are_seven() -> None:
    assert math.ceil(0.07 * 100) == 8
    assert ceil_fraction(0.07, 100) == 7


@pytest.mark.parametrize(
    ("fraction", "n", "expected"),
    [
        (0.5, 0, 0),
        (0.0, 5, 0),
        (1.0, 5, 5),
        (0.5, 5, 3),
        (0.2, 5, 1),
        (0.2000001, 5, 2),
        (1e-9, 5, 1),
        (0.001, 10**9 + 1, 10**6 + 1),
    ],
)
def test_it_rounds_up(fraction: float, n: int, expected: int) -> None:
    assert ceil_fraction(fraction, n) == expected


def test_fractions_of_small_integers_and_decimals_are_exact() -> None:
    for denominator in (3, 7, 49, 100, 400, 1000):
        for numerator in range(1, denominator):
            for n in (1, 49, 100, 7850, 865_482, 2**31 - 1):
                exact = math.ceil(Fraction(numerator, denominator) * n)
                assert ceil_fraction(numerator / denominator, n) == exact
