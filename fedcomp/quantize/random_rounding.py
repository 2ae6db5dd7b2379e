"""Every entry rounded at random, without bias: to equal steps, to powers of two, or to levels that halve."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedcomp.core import CompensatedUpdate, Vector, check_int
from fedcomp.quantize.buckets import (
    MAX_EXPONENT,
    Integers,
    Words,
    check_bucket,
    natural_exponents,
    round_at_random,
    round_exponents,
    rounded_buckets,
    rounding_stream,
    signed,
)
from fedcomp.quantize.error_bound import ErrorBound, Unbiased
from fedcomp.quantized import EXPONENTS, LINEAR, POWERS, Levels, Scale

NATURAL_VARIANCE = 1 / 8


@dataclass(frozen=True, slots=True)
class Qsgd:
    """Round each entry at random to one of `levels` steps on either side of zero; the last step is the bucket's norm.

    Alistarh, Grubic, Li, Tomioka, Vojnović, NeurIPS 2017: the norm of `bucket` entries, "l2" as in their theory or "max" as in
    their experiments.  `levels` is the paper's s, so 7 levels and a sign take 4 bits.  Unbiased.  With "l2", the expected
    number of nonzero entries in a bucket is at most ``levels * (levels + sqrt(bucket))``.
    """

    levels: int
    norm: str
    bucket: int

    def __post_init__(self) -> None:
        check_int("levels", self.levels, 1, 255, "the levels above zero")
        check_bucket(self.bucket, self.norm)

    @property
    def variance_constant(self) -> float:
        """The least known w with E||Q(v) - v||^2 <= w ||v||^2.

        "l2": min(B / s^2, sqrt(B) / s), Lemma 3.1.  "max": (sqrt(1 + (B - 1) / s^2) - 1) / 2, which a bucket of one entry and
        B - 1 equal ones within the first level reaches.  (An entry of t levels adds frac(t) (1 - frac(t)) to the variance and
        t^2 to the square, so none does worse than at one t below 1; the best t makes the quotient 1 / (2 t) - 1.)
        """
        if self.norm == "l2":
            return min(self.bucket / self.levels**2, math.sqrt(self.bucket) / self.levels)
        return small_entries_variance(self.bucket, self.levels)

    def error_bound(self, n: int) -> ErrorBound:
        """Return the variance of a bucket, which is also the variance of the vector."""
        return Unbiased(replace(self, bucket=min(self.bucket, n)).variance_constant)

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels.  Raises `ValueError` if an entry is NaN or infinite."""
        return rounded_buckets(
            value,
            self.bucket,
            self.norm,
            Scale(LINEAR, 2 * self.levels + 1),
            lambda ratios, words: round_at_random(ratios, self.levels, words),
        )


@dataclass(frozen=True, slots=True)
class Natural:
    """Round each entry at random to one of the two powers of two next to it, up with probability mantissa.

    Horváth, Ho, Horváth, Sahu, Canini, Richtárik, arXiv 1905.10988, natural compression.  A random number
    is added to the mantissa, and the carry rounds.  Unbiased, and E||C(v)||^2 <= 9/8 ||v||^2.  Denormals become zero or the
    smallest normal number, without bias; entries above 2^127 are rounded down.
    """

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels: signs and exponents.  Raises `ValueError` if an entry is NaN or infinite."""
        draws = rounding_stream(value.context)
        levels = np.empty(value.n, np.uint16)
        for start, block in value.blocks():
            exponents = natural_exponents(block, draws.words(block.size))
            np.add(signed(exponents, block), MAX_EXPONENT, out=levels[start : start + block.size], casting="unsafe")
        return Levels(levels, Scale(EXPONENTS, 2 * MAX_EXPONENT + 1), np.ones(1, np.float32), None, (value.n,))

    def error_bound(self, n: int) -> ErrorBound:
        """Return the variance 1/8."""
        return Unbiased(NATURAL_VARIANCE)


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

    def error_bound(self, n: int) -> ErrorBound:
        """Return the variance: 1/8 for entries between two powers of two, plus QSGD's for entries below the least level."""
        bucket, levels = min(self.bucket, n), 2.0 ** (self.levels - 1)
        least = min(bucket / levels**2, math.sqrt(bucket) / levels) if self.norm == "l2" else None
        return Unbiased(NATURAL_VARIANCE + (small_entries_variance(bucket, levels) if least is None else least))


def small_entries_variance(bucket: int, levels: float) -> float:
    """Return the variance of a bucket with one largest entry, whose others are within the first of `levels` equal steps."""
    return (math.sqrt(1 + (bucket - 1) / levels**2) - 1) / 2


def dithered(ratios: Vector, levels: int, words: Words) -> Integers:
    """Return for each ratio in [-1, 1] the level of its magnitude, 0 to `levels`; `words`, one per ratio, are overwritten.

    With y a magnitude and t = 2^(1-s), the bits of y + max(y, t), minus those of t, are the level and the distance to the next
    one, as in `Natural`: from t up the sum is 2 y, and below it the mantissa of t + y is y / t.
    """
    least = np.array(2.0 ** (1 - levels), np.float32)
    magnitudes = np.abs(ratios)
    magnitudes += np.maximum(magnitudes, least)
    fixed = magnitudes.view(np.int32)
    fixed -= least.view(np.int32)
    return round_exponents(fixed, words)
