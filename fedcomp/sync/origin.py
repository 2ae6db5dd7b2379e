"""The version from which a replica counts its steps on the grid: every order of the same steps ends in the same bits."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, block_slices
from fedcomp.quantized import UNIT, StepCounts, Steps

if TYPE_CHECKING:
    from fedcomp.sync.replica import Replica

STEP_BLOCK_ENTRIES = 1 << 14
"""Entries of a step that are computed at a time, so that the temporaries stay in the cache."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The version `base` from which a replica counts its steps: its vector is ``base + counts * UNIT``.

    `counts` int32 (n,) change in place; `base` does not change.  Counts are added without rounding, and each entry is rounded
    to float32 once, so every order of the same steps ends in the same bits.
    """

    base: "Replica"
    counts: StepCounts

    @classmethod
    def at(cls, replica: "Replica", *, copy: bool = True) -> "Origin":
        """Return the origin of steps that start from `replica`; without `copy`, its vector must not change any more."""
        base = replace(replica, vector=replica.vector.copy() if copy else replica.vector, origin=None)
        return cls(base, np.zeros(base.vector.size, np.int32))

    def vector(self) -> Vector:
        """Return the vector that the counts lead to, float32 (n,)."""
        vector = np.empty_like(self.base.vector)
        for part in block_slices(vector.size, STEP_BLOCK_ENTRIES):
            base, counts = self.base.vector[part], self.counts[part]
            vector[part] = on_grid(base, counts) if counts.any() else base
        return vector

    def rounded_off(self) -> Vector:
        """Return the rounding error of each entry, float32 (n,): the exact result of the counts minus the vector."""
        error = np.empty_like(self.base.vector)
        for part in block_slices(error.size, STEP_BLOCK_ENTRIES):
            base, counts = self.base.vector[part], self.counts[part]
            if not counts.any():
                error[part] = 0
                continue
            moved = on_grid(base, counts).astype(np.float64) - base
            error[part] = np.multiply(counts, UNIT, dtype=np.float64) - moved
        return error

    def product(self, vector: Vector) -> float:
        """Return the scalar product of `vector`, float32 (n,), with the exact sum of all steps."""
        return UNIT * float(np.einsum("i,i", vector, self.counts, dtype=np.float64))

    def steps(self) -> Steps:
        """Return the counts that are not 0."""
        indices = np.flatnonzero(self.counts)
        return Steps(self.counts.size, indices, self.counts[indices])


def on_grid(base: Vector, counts: NDArray[Any]) -> Vector:
    """Return ``base + counts * UNIT``, added in float64 and rounded to float32; entries of count 0 keep the bits of `base`."""
    total: NDArray[np.float64] = np.multiply(np.negative(counts), UNIT, dtype=np.float64)
    np.subtract(base, total, out=total)  # unlike -0.0 + 0.0, -0.0 - 0.0 is -0.0
    return total.astype(np.float32)
