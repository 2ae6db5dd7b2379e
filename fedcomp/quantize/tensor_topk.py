"""The largest entries of each tensor for itself."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, check_range
from fedcomp.quantize.topk import num_kept, select
from fedcomp.quantized import Sparse


@dataclass(frozen=True, slots=True)
class TensorTopK:
    """Keep of each tensor of size m its k = max(1, ceil(density m)) entries of largest magnitude; exact zeros never.

    Ji, Jiang, Walid, Li, IEEE Intelligent Systems 37(2), 2022, "selective masking".  Every tensor sends something, so small
    ones raise the density of the whole.
    """

    density: float

    def __post_init__(self) -> None:
        """Refuse a density outside (0, 1]."""
        check_range("density", self.density, above=0, most=1, what="the fraction kept")

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` where an entry of the sum is NaN or infinite."""
        parts = [(start, *select(part, num_kept(self.density, part.n))) for start, part in value.tensors()]
        indices = np.concatenate([start + indices for start, indices, _ in parts])
        return Sparse(value.n, indices, np.concatenate([values for _, _, values in parts]))
