"""Random entries that the receiver can name without being told."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, check_range
from fedcomp.quantize.topk import num_kept
from fedcomp.quantized import NUM_SEEDS, Seeded, seeded_indices


@dataclass(frozen=True, slots=True)
class SeededSubset:
    """Keep k = max(1, ceil(density n)) entries, drawn anew each time from the occasion's seed; `unbiased`: times n / k.

    Wangni, Wang, Liu, Zhang, NeurIPS 2018.
    """

    density: float
    unbiased: bool

    def __post_init__(self) -> None:
        """Refuse a density outside (0, 1]."""
        check_range("density", self.density, above=0, most=1, what="the fraction kept")

    def quantize(self, value: CompensatedUpdate, /) -> Seeded:
        """Return the drawn entries.  Raises `ValueError` where an entry of the sum, drawn or not, is NaN or infinite."""
        k, seed = num_kept(self.density, value.n), value.context.seed % NUM_SEEDS
        indices = seeded_indices(value.n, k, seed)
        values = np.empty(k, np.float32)
        for start, block in value.blocks():
            first, last = np.searchsorted(indices, (start, start + block.size))
            values[first:last] = block[indices[first:last] - start]
        if self.unbiased:
            values = np.clip(values.astype(np.float64) * (value.n / k), -MAX_FLOAT32, MAX_FLOAT32).astype(np.float32)
        return Seeded(value.n, seed, indices, values)
