"""Levels that halve from one to the next, rounded at random so that the mean is right."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, Vector, check_choice, check_int
from fedcomp.quantize.buckets import Whole, Words, carried, check_bucket, drawing, folded, norms, ratios, signed
from fedcomp.quantized import POWERS, Levels, Scale, group_count


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
        check_choice("norm", self.norm, ("l2", "max"))
        check_bucket(self.bucket)

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels.  Raises `ValueError` where an entry is NaN or infinite."""
        draws, count = drawing(value.context), 2 * self.levels + 1
        levels = np.empty(value.n, np.uint8)
        scales = np.empty(group_count(value.n, self.bucket), np.float32)
        for entries, buckets, rows in folded(value, self.bucket):
            scales[buckets] = norms(rows, self.norm)
            found = ratios(rows, scales[buckets])
            steps = dithered(found, self.levels, draws.words(rows.size))
            np.add(signed(steps, found), self.levels, out=levels[entries], casting="unsafe")
        return Levels(levels, Scale(POWERS, count), scales, None, self.bucket)


def dithered(ratios: Vector, levels: int, words: Words) -> Whole:
    """Return of each ratio of [-1, 1] the magnitude's level, 0 ... `levels`; `words`, as many random ones, are spent.

    With y a magnitude and t = 2^(1-s), the bits of y + max(y, t), less those of t, are the level and how far it is to the next
    one, as in `Natural`: from t up the sum is 2 y, and below it the mantissa of t + y is y / t.
    """
    least = np.array(2.0 ** (1 - levels), np.float32)
    magnitudes = np.abs(ratios)
    magnitudes += np.maximum(magnitudes, least)
    fixed = magnitudes.view(np.int32)
    fixed -= least.view(np.int32)
    return carried(fixed, words)
