"""Levels at equal distances from the least to the largest entry of a bucket."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, RandomStream, Vector, check_bool, check_int
from fedcomp.quantize.buckets import at_random, check_bucket, drawing, folded, middle, ratios
from fedcomp.quantized import LINEAR, Levels, Scale, group_count


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Round each entry to the nearest of 2^`bits` levels between the least and the largest of its `bucket`.

    Markov, Ramezanikebrya, Alistarh, "CGX: Adaptive System Support for Communication-Efficient Deep Learning", Middleware
    2022: with u = (max - min) / (2^b - 1), level floor((x - min) / u + r), where r is 1/2 or, if `stochastic`, uniform in
    [0, 1), which is unbiased.
    """

    bits: int
    bucket: int
    stochastic: bool = False

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        check_int("bits", self.bits, 1, 8, "bits an entry")
        check_bucket(self.bucket)
        check_bool("stochastic", self.stochastic)

    def encode(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels.  Raises `ValueError` where an entry is NaN or infinite."""
        draws = drawing(value.context) if self.stochastic else None
        levels = np.empty(value.n, np.uint8)
        offsets, scales = np.empty((2, group_count(value.n, self.bucket)), np.float32)
        for entries, buckets, rows in folded(value, self.bucket):
            offsets[buckets], scales[buckets] = spans(rows)
            place(rows, offsets[buckets], scales[buckets], self.bits, levels[entries], draws)
        return Levels(levels, Scale(LINEAR, 1 << self.bits), scales, offsets, self.bucket)

    def decode(self, value: Levels, /) -> CompensatedUpdate:
        """Return the vector that the levels stand for."""
        return CompensatedUpdate(value.dense())


def spans(rows: Vector) -> tuple[Vector, Vector]:
    """Return (offsets, scales) of the rows: the middle of each one's range, and half its width."""
    return middle(rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64))


def place(
    rows: Vector, offsets: Vector, scales: Vector, bits: int, out: NDArray[np.uint8], draws: RandomStream | None = None
) -> None:
    """Write the level of each entry into `out`: the nearest one, or with `draws` one of the two next to it at random."""
    steps = (1 << bits) - 1
    # From the middle of the range, since from its least entry to its largest it may be further than float32 reaches.
    found = ratios(rows - offsets[:, None], scales)
    found *= np.float32(0.5)
    found += np.float32(0.5)
    np.clip(found, 0, 1, out=found)
    if draws is None:
        found *= np.float32(steps)
        np.add(found, np.float32(0.5), out=out, casting="unsafe")
        return
    out[:] = at_random(found, steps, draws.words(found.size))
    if not scales.all():  # entries that are all equal cost no random levels
        out.reshape(rows.shape)[scales == 0] = 1 << bits - 1
