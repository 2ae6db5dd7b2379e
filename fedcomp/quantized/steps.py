"""Vectors on a grid: whole multiples of one unit, whose sums are exact in any order."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, block_slices
from fedcomp.quantized.in_ranges import InRanges
from fedcomp.quantized.levels import SparseLevels
from fedcomp.quantized.vectors import Indices, KeptBlocks, QuantizedVector, Ternary

UNIT = 2.0**-24
"""The unit of the grid: a power of two below every change that matters to float32 weights."""
MAX_STEPS = 2**31 - 1
"""The most units that an entry may have, either way."""

MAX_MAGNITUDE = 64.0
"""The largest magnitude that is rounded to a power of two; one step of 128 would have too many units."""

StepCounts = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Steps(KeptBlocks):
    """The kept entries of a vector of `n`, in units: `indices` int64 (k,) ascending, `counts` int32 (k,), none is 0."""

    n: int
    indices: Indices
    counts: StepCounts

    def kept_blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, values of those kept entries, each rounded to float32) in order."""
        for part in block_slices(self.counts.size):
            yield part, np.multiply(self.counts[part], UNIT, dtype=np.float64).astype(np.float32)


def counts_of(values: Vector, *, spent: bool = False) -> StepCounts | None:
    """Return float32 `values` in units; None if a value is no whole multiple of the unit, or has too many units.

    With `spent`, the counts overwrite the memory of `values`.
    """
    counts = values.view(np.int32) if spent else np.empty(values.size, np.int32)
    for part in block_slices(values.size):
        units = np.multiply(values[part], 1 / UNIT, dtype=np.float64)
        if (np.abs(units) > MAX_STEPS).any() or (units != np.rint(units)).any():
            return None
        counts[part] = units
    return counts


def steps_in(quantized: QuantizedVector) -> Steps | None:
    """Return a quantized vector on the grid as `Steps`; None if an entry is off the grid.

    Returns None also for a vector that keeps all entries, or all entries of some tensors.
    """
    if isinstance(quantized, Steps):
        return quantized
    if isinstance(quantized, InRanges) and quantized.entries.sparse() is None:
        return None
    sparse = quantized.sparse()
    fresh = isinstance(quantized, Ternary | SparseLevels)  # others may share their values
    counts = counts_of(sparse.values, spent=fresh) if sparse is not None else None
    return Steps(sparse.n, sparse.indices, counts) if sparse is not None and counts is not None else None


def onto_grid(quantized: Any) -> Any:
    """Return a ternary vector with its magnitude rounded to the nearest power of two; any other vector as it is.

    Powers of two that hardly change from one version to the next have sums that are small multiples of the smallest power.
    """
    if not isinstance(quantized, Ternary):
        return quantized
    fraction, exponent = math.frexp(float(quantized.magnitude))  # fraction in [1/2, 1)
    power = math.ldexp(1.0, exponent if fraction > math.sqrt(0.5) else exponent - 1)
    if not UNIT <= power <= MAX_MAGNITUDE:
        return quantized
    return Ternary(quantized.n, quantized.indices, quantized.negative, np.float32(power))
