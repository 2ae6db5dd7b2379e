"""Magnitudes as whole powers of a base below the largest one; what lies too far below is left out."""

import math
from dataclasses import dataclass

import numpy as np

from fedcomp.lazy_sum import LazySum
from fedcomp.settings import whole, within
from fedcomp.symbols.levels import SparseLevels, geometric


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Replace a by ± M / base^z, M the largest magnitude and z = round(log_base(M / |a|)), and keep it if z < `levels`.

    The reciprocal mapper, the logarithm quantization and the threshold filter in the style of FastSGD (Yang, Chen, Zeng,
    Gao, arXiv:2112.04291): r = 1 / |a| is mapped to z = round(log_base(r / r_min)), r_min = 1 / M.  A kept magnitude is
    off by a factor of sqrt(base) at most; rounding is to the nearest, so it is biased.
    """

    base: float
    levels: int

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        within("base", self.base, least=1.001, most=1024)
        whole("levels", self.levels, 1, 256)

    def encode(self, value: LazySum, /) -> SparseLevels:
        """Return the kept entries by level.  Raises `ValueError` where an entry is NaN or infinite."""
        largest = np.float32(0)
        for _, block in value.blocks():
            largest = max(largest, np.abs(block).max())
        indices, values = self._kept(value, float(largest))
        magnitudes = geometric(largest, self.base, self.levels)
        magnitudes = magnitudes[: max(1, np.count_nonzero(magnitudes))]
        with np.errstate(divide="ignore"):
            distance = np.log(float(largest) / np.abs(values).astype(np.float64)) / math.log(self.base)
        levels = np.clip(np.rint(distance), 0, magnitudes.size - 1).astype(np.uint8)
        return SparseLevels(value.n, indices, values < 0, levels, magnitudes, self.base)

    def decode(self, value: SparseLevels, /) -> LazySum:
        """Return the entries as their level's magnitude, and zeros elsewhere."""
        return LazySum(value.dense())

    def _kept(self, value: LazySum, largest: float) -> tuple[np.ndarray, np.ndarray]:
        bound = largest / self.base ** (self.levels - 0.5)
        indices, values = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for start, block in value.blocks():
            hits = np.flatnonzero((np.abs(block) >= bound) & (block != 0))
            indices.append(hits + start)
            values.append(block[hits])
        return np.concatenate(indices), np.concatenate(values)
