"""Levels that halve from one to the next, rounded at random without bias."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, Vector, check_int
from fedcomp.quantize.buckets import Integers, Words, check_bucket, round_exponents, rounded_buckets, signed
from fedcomp.quantized import POWERS, Levels, Scale


@dataclass(frozen=True, slots=True)
class NaturalDithering:
    """Round each entry over its bucket's norm at random to a neighbour among 0, 2^(1-s), ..., 1/2, 1, s = `levels`.

    Horváth, Ho, Horváth, Sahu, Canini, Richtárik, arXiv 1905.10988, natural dithering: the `norm` is "l2" or "max", here of
    `bucket` entries.  Unbiased.
    """

    levels: int
    norm: str
    bucket: int

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        check_int("levels", self.levels, 1, 64, "the levels above zero")
        check_bucket(self.bucket, self.norm)

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels.  Raises `ValueError` if an entry is NaN or infinite."""
        return rounded_buckets(
            value,
            self.bucket,
            self.norm,
            Scale(POWERS, 2 * self.levels + 1),
            lambda ratios, words: signed(dithered(ratios, self.levels, words), ratios),
        )


def dithered(ratios: Vector, levels: int, words: Words) -> Integers:
    """Return for each ratio of [-1, 1] the level of its magnitude, 0 to `levels`; `words`, one a ratio, are overwritten.

    With y a magnitude and t = 2^(1-s), the bits of y + max(y, t), minus those of t, are the level and the distance to the next
    one, as in `Natural`: from t up the sum is 2 y, and below it the mantissa of t + y is y / t.
    """
    least = np.array(2.0 ** (1 - levels), np.float32)
    magnitudes = np.abs(ratios)
    magnitudes += np.maximum(magnitudes, least)
    fixed = magnitudes.view(np.int32)
    fixed -= least.view(np.int32)
    return round_exponents(fixed, words)
