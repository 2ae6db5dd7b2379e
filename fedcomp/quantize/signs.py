"""The sign of each entry, and one magnitude for all of a tensor."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, RandomStream, Vector, check_choice, check_range
from fedcomp.quantize.buckets import rounding_stream, tensor_blocks
from fedcomp.quantized import LINEAR, Levels, Scale


@dataclass(frozen=True, slots=True)
class Signs:
    """Replace each entry by its sign times `step`, or times its tensor's mean magnitude ||a||_1 / d if that is None.

    With a step it is signSGD: Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018.  With the mean it is the contractive
    sign of EF-signSGD (Karimireddy, Rebjock, Stich, Jaggi, ICML 2019), the Block-Sign of COMP-AMS (Li, Karimi, Li, ICLR 2022)
    and the 1-bit code of DoubleSqueeze (Tang, Yu, Lian, Zhang, Liu, ICML 2019).  d counts all entries of the tensor.

    The sign of zero is 0 with `ties` "zero", which makes three levels, and +1 or -1 at random with "coin", which makes two.
    """

    step: float | None = None
    ties: str = "zero"

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        if self.step is not None:
            check_step(self.step)
        check_choice("ties", self.ties, ("zero", "coin"))

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the signs, one scale a tensor.  Raises `ValueError` if an entry is NaN or infinite."""
        sizes, stream = np.array(value.sizes), rounding_stream(value.context)
        levels, totals = np.empty(value.n, np.uint8), np.zeros(sizes.size)
        for tensor, entries, part in tensor_blocks(value):
            if self.step is None:
                totals[tensor] += np.abs(part).sum(dtype=np.float64)
            positive = np.greater(part, 0, out=levels[entries].view(np.bool_))
            if self.ties == "coin":
                _toss(part, positive, stream)
            else:
                positive.view(np.uint8)[...] += np.greater_equal(part, 0).view(np.uint8)
        means = totals / sizes if self.step is None else np.full(sizes.size, self.step)
        scale = Scale(LINEAR, 2 if self.ties == "coin" else 3)
        return Levels(levels, scale, means.astype(np.float32), None, value.sizes)


def check_step(step: object) -> None:
    """Refuse a step out of range."""
    check_range("step", step, least=1e-37, most=1e37, what="the magnitude of all entries")


def _toss(entries: Vector, positive: NDArray[np.bool_], stream: RandomStream) -> None:
    """Mark each zero of `entries` as positive or not, at random."""
    zeros = np.flatnonzero(entries == 0)
    if zeros.size:
        positive[zeros] = stream.words(zeros.size) >> np.uint32(31)
