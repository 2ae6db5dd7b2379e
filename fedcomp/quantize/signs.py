"""Two or three levels a tensor: signs, one bit, ternary gradients."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, Vector, check_bool, check_choice, check_range
from fedcomp.quantize.buckets import midpoints, ratios, round_at_random, rounding_stream, tensor_blocks
from fedcomp.quantize.error_bound import Contracting, ErrorBound, Unbiased
from fedcomp.quantize.least_error import LeastError
from fedcomp.quantize.random_rounding import small_entries_variance
from fedcomp.quantized import LINEAR, Levels, Scale

EQUAL = 1e-12
"""Entries with a variance below this fraction of their mean square are equal, up to rounding."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Replace each entry by its sign times `step`, or times its tensor's mean magnitude ||a||_1 / d if `step` is None.

    With a step it is signSGD: Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018.  With the mean it is the contractive
    sign of EF-signSGD (Karimireddy, Rebjock, Stich, Jaggi, ICML 2019), the Block-Sign of COMP-AMS (Li, Karimi, Li, ICLR 2022)
    and the 1-bit code of DoubleSqueeze (Tang, Yu, Lian, Zhang, Liu, ICML 2019).  d counts all entries of the tensor.

    With `ties` "zero" the sign of zero is 0, which makes three levels.  With "coin" it is +1 or -1 at random: two levels.
    """

    step: float | None = None
    ties: str = "zero"

    def __post_init__(self) -> None:
        if self.step is not None:
            check_step(self.step)
        check_choice("ties", self.ties, ("zero", "coin"))

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the signs, with one scale per tensor.  Raises `ValueError` if an entry is NaN or infinite."""
        sizes, stream = np.array(value.sizes), rounding_stream(value.context)
        levels, totals = np.empty(value.n, np.uint8), np.zeros(sizes.size)
        for tensor, entries, part in tensor_blocks(value):
            if self.step is None:
                totals[tensor] += np.abs(part).sum(dtype=np.float64)
            positive = np.greater(part, 0, out=levels[entries].view(np.bool_))
            if self.ties == "coin":
                zeros = np.flatnonzero(part == 0)
                positive[zeros] = stream.words(zeros.size) >> np.uint32(31)
            else:
                positive.view(np.uint8)[...] += np.greater_equal(part, 0).view(np.uint8)
        means = totals / sizes if self.step is None else np.full(sizes.size, self.step)
        scale = Scale(LINEAR, 2 if self.ties == "coin" else 3)
        return Levels(levels, scale, means.astype(np.float32), None, value.sizes)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the bound 1 - 1 / n of the mean magnitude; None for a step, which may be far from all entries."""
        return Contracting(1 - 1 / n) if self.step is None else None


def check_step(step: object) -> None:
    """Refuse a step out of range."""
    check_range("step", step, least=1e-37, most=1e37, what="the magnitude of all entries")


@dataclass(frozen=True, slots=True)
class OneBit:
    """Replace each entry by the mean of its tensor's entries on the same side of zero; zero counts as positive.

    Seide, Fu, Droppo, Li, Yu, Interspeech 2014, section 3: threshold 0, and the reconstruction values of least error.
    A tensor whose entries are all on one side has one value.
    """

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return a bit for each entry.  Raises `ValueError` if an entry is NaN or infinite."""
        sizes = np.array(value.sizes)
        levels = np.empty(value.n, np.uint8)
        above, below, count = np.zeros((3, sizes.size))
        for tensor, entries, part in tensor_blocks(value):
            count[tensor] += np.count_nonzero(np.greater_equal(part, 0, out=levels[entries].view(np.bool_)))
            above[tensor] += np.maximum(part, 0).sum(dtype=np.float64)
            below[tensor] += np.minimum(part, 0).sum(dtype=np.float64)
        high, low = above / np.maximum(count, 1), below / np.maximum(sizes - count, 1)
        offsets, scales = midpoints(np.where(count < sizes, low, high), np.where(count > 0, high, low))
        return Levels(levels, Scale(LINEAR, 2), scales, offsets, value.sizes)

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - 1 / n: one entry of a side may be far larger than the others."""
        return Contracting(1 - 1 / n)


@dataclass(frozen=True, slots=True)
class TernGrad:
    """Clip at `clip` standard deviations (0: no clipping), then round each entry at random to -s, 0 or s.

    Wen, Xu, Yan, Wu, Wang, Chen, Li, NeurIPS 2017; their clip is 2.5.  s is the scale of the tensor: its largest magnitude
    after clipping, as in the paper; the authors' program always takes `clip` deviations.  The deviation is from the mean of
    the whole tensor, zeros included.  If all entries are equal, nothing is clipped.  If the clip is below the least float32,
    all entries become 0.  Unbiased except for the clipping.

    The `scaler` "own" is that scale.  "power" rounds it up to a power of two.  Senders whose scales are in one octave then
    have the same scale without communication, and the sum of any updates is a whole multiple of the least scale, exact in any
    order.

    With `shrunk` and no clipping, s is sent as |v|^2 / |v|_1, which is the scale divided by 1 + w, where w |v|^2 is the
    variance for this very tensor.  Then E||Q(v) - v||^2 = (1 - a) ||v||^2 with a = |v|^2 / (s |v|_1), at least
    2 / (1 + sqrt(m)) for m entries with "own".  Error feedback then keeps a residual several times smaller than that of the
    unbiased form, whose variance is above 1.
    """

    clip: float
    scaler: str = "own"
    shrunk: bool = False

    def __post_init__(self) -> None:
        check_range("clip", self.clip, least=0, most=1000, what="standard deviations, 0 for no clipping")
        check_choice("scaler", self.scaler, ("own", "power"))
        check_bool("shrunk", self.shrunk)
        if self.shrunk and self.clip:
            raise ValueError(f"clip is {self.clip!r}; a shrunk quantizer has none")

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels, with one scale per tensor.  Raises `ValueError` if an entry is NaN or infinite."""
        limits, clipped, contracted = self._limits(value)
        scales = limits if self.scaler == "own" else _powers_of_two(limits)
        clipped |= scales < limits
        draws = rounding_stream(value.context)
        levels = np.empty(value.n, np.uint8)
        for tensor, entries, part in tensor_blocks(value):
            if clipped[tensor]:  # before the division, which may overflow for a tiny scale; a scale of 0 leaves zeros
                end = min(limits[tensor], scales[tensor])
                part = np.clip(part, -end, end)
            found = ratios(part[None], scales[tensor : tensor + 1])
            np.add(round_at_random(found, 1, draws.words(part.size)), 1, out=levels[entries], casting="unsafe")
        return Levels(levels, Scale(LINEAR, 3), contracted if self.shrunk else scales, None, value.sizes)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the variance without clipping, or the bound of the shrunk form; None with clipping."""
        if self.clip:
            return None
        octaves = 1 if self.scaler == "own" else 2  # a scale may be twice the largest magnitude
        if self.shrunk:
            return Contracting(1 - 2 / octaves / (1 + math.sqrt(n)))
        return Unbiased(octaves * (small_entries_variance(n, 1) + 1) - 1)

    def contracting(self) -> "LeastError | TernGrad":
        """Return the quantizer with the scale of least error: it keeps the signs, and the largest entry is never zero.

        With "power" the largest entry may become zero, so this form has the scaler "own".
        """
        return self if self.shrunk else LeastError(replace(self, scaler="own"))

    def _limits(self, value: CompensatedUpdate) -> tuple[Vector, NDArray[np.bool_], Vector]:
        """Return for each tensor its largest magnitude after clipping, whether any entry is clipped, and |v|^2 / |v|_1."""
        sizes = np.array(value.sizes)
        largest, total, absolute, squares = np.zeros((4, sizes.size))
        for tensor, _, part in tensor_blocks(value):
            largest[tensor] = max(largest[tensor], float(part.max()), -float(part.min()))
            if self.clip or self.shrunk:
                wide = part.astype(np.float64)
                total[tensor] += wide.sum()
                squares[tensor] += np.square(wide).sum()
                absolute[tensor] += np.abs(wide).sum() if self.shrunk else 0
        mean, square = total / sizes, squares / sizes
        variance = square - np.square(mean)
        clips = (variance > EQUAL * square) & (self.clip > 0)
        limit = np.sqrt(variance, where=clips, out=np.full(sizes.size, np.inf)) * (self.clip or 1)
        limits = np.minimum(largest, limit).astype(np.float32)
        contracted = np.divide(squares, absolute, where=absolute > 0, out=np.zeros(sizes.size))
        return limits, limits < largest, contracted.astype(np.float32)


def _powers_of_two(limits: Vector) -> Vector:
    """Return for each limit the least power of two that is not below the limit, at most 2^127, and 0 for 0."""
    fractions, exponents = np.frexp(limits)
    return np.where(limits > 0, np.ldexp(np.float32(1), np.minimum(exponents - (fractions == 0.5), 127)), 0).astype(
        np.float32
    )
