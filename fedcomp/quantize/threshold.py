"""The entries above a multiple of the mean magnitude: ternary quantization without random numbers."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, Vector, check_range
from fedcomp.quantize.error_bound import Contracting, ErrorBound
from fedcomp.quantized import Indices, Sparse

MAX_FACTOR = 0.999


@dataclass(frozen=True, slots=True)
class AboveMean:
    """Keep the entries whose magnitude is above `factor` (0 to 0.999) times the mean magnitude.

    The largest entry is always kept, and exact zeros never are.  With their mean as the common magnitude (`Ternarize`), 0.7
    is near the threshold of least squared error for a Gaussian vector: Li, Zhang, Liu, arXiv:1605.04711, section 3.1.
    """

    factor: float

    def __post_init__(self) -> None:
        check_range("factor", self.factor, least=0, most=MAX_FACTOR, what="a multiple of the mean magnitude")

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        total = sum(float(np.abs(block).sum(dtype=np.float64)) for _, block in value.blocks())
        exact = self.factor * total / value.n
        if float(least := np.float32(exact)) > exact:  # rounded up, it might exceed the largest entry
            least = np.nextafter(least, np.float32(0))
        indices: list[Indices] = []
        values: list[Vector] = []
        for start, block in value.blocks():
            kept = np.flatnonzero(np.abs(block) > least)
            indices.append(kept + start)
            values.append(block[kept])
        return Sparse(value.n, np.concatenate(indices), np.concatenate(values))

    def error_bound(self, n: int) -> ErrorBound:
        """Return min(factor^2, 1 - 1 / n): the mean magnitude is at most the norm / sqrt(n), and one entry is kept."""
        return Contracting(min(self.factor**2, 1 - 1 / n))
