"""Magnitudes as whole powers of a base below the largest one; smaller ones are left out."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, check_int, check_range
from fedcomp.quantized import Indices, SparseLevels, geometric


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Replace a by ± M / base^z, M the largest magnitude and z = round(log_base(M / |a|)), and keep it if z < `levels`.

    The reciprocal mapper, the logarithm quantization and the threshold filter in the style of FastSGD (Yang, Chen, Zeng,
    Gao, arXiv:2112.04291): r = 1 / |a| is mapped to z = round(log_base(r / r_min)), r_min = 1 / M.  A kept magnitude is
    off by a factor of at most sqrt(base).  Rounding is to the nearest, so it is biased.
    """

    base: float
    levels: int

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        check_range("base", self.base, least=1.001, most=1024)
        check_int("levels", self.levels, 1, 256)

    def quantize(self, value: CompensatedUpdate, /) -> SparseLevels:
        """Return the kept entries by level.  Raises `ValueError` if an entry is NaN or infinite."""
        largest = np.float32(0)
        for _, block in value.blocks():
            largest = max(largest, np.abs(block).max())
        magnitudes = geometric(largest, self.base, self.levels)
        magnitudes = magnitudes[: max(1, np.count_nonzero(magnitudes))]
        # 0 if it is too small for float32: then all but zeros are kept.
        bound = np.float32(float(largest) * self.base ** (0.5 - self.levels))
        indices: list[Indices] = []
        negative: list[NDArray[np.bool_]] = []
        levels: list[NDArray[np.uint8]] = []
        for start, block in value.blocks():
            magnitude = np.abs(block)
            hits = np.flatnonzero(magnitude >= bound) if bound > 0 else np.flatnonzero(magnitude)
            distance = (math.log(largest) if largest else 0) - np.log(magnitude[hits])
            levels.append(np.clip(np.rint(distance / math.log(self.base)), 0, magnitudes.size - 1).astype(np.uint8))
            indices.append(hits + start)
            negative.append(block[hits] < 0)
        joined = np.concatenate(indices), np.concatenate(negative), np.concatenate(levels)
        return SparseLevels(value.n, *joined, magnitudes, self.base)
