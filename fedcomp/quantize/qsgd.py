"""Levels at equal distances, rounded at random without bias."""

import math
from dataclasses import dataclass

from fedcomp.core import CompensatedUpdate, check_int
from fedcomp.quantize.buckets import check_bucket, round_at_random, rounded_buckets
from fedcomp.quantized import LINEAR, Levels, Scale


@dataclass(frozen=True, slots=True)
class Qsgd:
    """Round each entry at random to one of `levels` steps on either side of zero, the last of which is its bucket's norm.

    Alistarh, Grubic, Li, Tomioka, Vojnović, NeurIPS 2017: the norm of `bucket` entries, "l2" as in their theory or "max" as in
    their experiments.  `levels` is the paper's s, so that 7 levels and a sign take 4 bits.  Unbiased; with "l2" at most
    ``levels * (levels + sqrt(bucket))`` entries of a bucket are expected not to be zero.
    """

    levels: int
    norm: str
    bucket: int

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
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
        return (math.sqrt(1 + (self.bucket - 1) / self.levels**2) - 1) / 2

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels.  Raises `ValueError` if an entry is NaN or infinite."""
        return rounded_buckets(
            value,
            self.bucket,
            self.norm,
            Scale(LINEAR, 2 * self.levels + 1),
            lambda ratios, words: round_at_random(ratios, self.levels, words),
        )
