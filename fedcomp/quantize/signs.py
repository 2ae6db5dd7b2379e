"""The sign of each entry, and one magnitude for all of a tensor."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, check_range
from fedcomp.quantize.buckets import by_tensor
from fedcomp.quantized import LINEAR, Levels, Scale


@dataclass(frozen=True, slots=True)
class Signs:
    """Replace each entry by its sign times `step`, or times its tensor's mean magnitude ||a||_1 / d where that is None.

    With a step it is signSGD: Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018.  With the mean it is the contractive
    sign of EF-signSGD (Karimireddy, Rebjock, Stich, Jaggi, ICML 2019), the Block-Sign of COMP-AMS (Li, Karimi, Li, ICLR 2022)
    and the 1-bit code of DoubleSqueeze (Tang, Yu, Lian, Zhang, Liu, ICML 2019).  d counts all entries of the tensor.  Zeros
    stay zero.
    """

    step: float | None = None

    def __post_init__(self) -> None:
        """Refuse a step out of range."""
        if self.step is not None:
            check_range("step", self.step, least=1e-37, most=1e37, what="the magnitude of all entries")

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the signs, one scale a tensor.  Raises `ValueError` where an entry is NaN or infinite."""
        sizes = np.array(value.sizes)
        levels, totals = np.empty(value.n, np.uint8), np.zeros(sizes.size)
        for tensor, entries, part in by_tensor(value):
            if self.step is None:
                totals[tensor] += np.abs(part).sum(dtype=np.float64)
            above = np.greater_equal(part, 0, out=levels[entries].view(np.bool_)).view(np.uint8)
            above += np.greater(part, 0).view(np.uint8)
        means = totals / sizes if self.step is None else np.full(sizes.size, self.step)
        return Levels(levels, Scale(LINEAR, 3), means.astype(np.float32), None, value.sizes)
