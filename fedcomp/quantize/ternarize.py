"""One magnitude for all kept entries, their mean: the second step of sparse ternary compression."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import BLOCK_ENTRIES, Vector
from fedcomp.errors import DivergedError
from fedcomp.quantized import Sparse, Ternary


@dataclass(frozen=True, slots=True)
class Ternarize:
    """Replace the kept entries by ±mu, mu the mean of their magnitudes.

    Sattler et al., "Robust and Communication-Efficient Federated Learning From Non-i.i.d. Data", IEEE TNNLS 31(9), 2020,
    Algorithm 1.  The mean is taken over the kept entries, never over the zeros, and summed in float64.
    """

    def quantize(self, value: Sparse, /) -> Ternary:
        """Return signs and the one magnitude."""
        magnitude = mean_magnitude(value.values)
        if not magnitude > 0:  # nothing is kept, or only denormals on a processor that treats them as zeros
            return Ternary(value.n, value.indices[:0], np.empty(0, np.bool_), np.float32(0))
        return Ternary(value.n, value.indices, value.values < 0, magnitude)


def mean_magnitude(values: Vector) -> np.float32:
    """Return the mean of |values|, (k,), summed in float64; 0 for none."""
    blocks = range(0, values.size, BLOCK_ENTRIES)
    total = sum(float(np.abs(values[start : start + BLOCK_ENTRIES]).astype(np.float64).sum()) for start in blocks)
    magnitude = np.float32(total / max(1, values.size))
    if not np.isfinite(magnitude):
        raise DivergedError("the residual holds NaN or infinity; only a state of finite values can be encoded")
    return magnitude
