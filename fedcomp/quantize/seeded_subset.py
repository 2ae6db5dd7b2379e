"""Random entries at positions that the receiver draws from the same seed."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, Vector
from fedcomp.quantize.topk import check_density, num_kept
from fedcomp.quantized import NUM_SEEDS, Indices, Seeded, seeded_indices


@dataclass(frozen=True, slots=True)
class SeededSubset:
    """Keep k = max(1, ceil(density n)) entries drawn from the context's seed; if `unbiased`, multiply them by n / k.

    Wangni, Wang, Liu, Zhang, NeurIPS 2018.
    """

    density: float
    unbiased: bool

    def __post_init__(self) -> None:
        """Refuse a density outside (0, 1]."""
        check_density(self.density)

    def quantize(self, value: CompensatedUpdate, /) -> Seeded:
        """Return the drawn entries.  Raises `ValueError` if an entry of the sum, drawn or not, is NaN or infinite."""
        k, seed = num_kept(self.density, value.n), value.context.seed % NUM_SEEDS
        indices = seeded_indices(value.n, k, seed)
        values = read_entries(value, indices)
        if self.unbiased:
            values = np.clip(values.astype(np.float64) * (value.n / k), -MAX_FLOAT32, MAX_FLOAT32).astype(np.float32)
        return Seeded(value.n, seed, indices, values)


def read_entries(value: CompensatedUpdate, indices: Indices) -> Vector:
    """Return the entries at `indices`, ascending.  Reads, and so checks, all entries of `value`."""
    values = np.empty(indices.size, np.float32)
    for start, block in value.blocks():
        first, last = np.searchsorted(indices, (start, start + block.size))
        values[first:last] = block[indices[first:last] - start]
    return values
