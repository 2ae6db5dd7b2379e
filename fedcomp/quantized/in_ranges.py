"""A quantized vector inside a longer one: the entries outside its ranges do not change."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized.vectors import Indices, QuantizedVector, Sparse


@dataclass(frozen=True, eq=False)
class InRanges:
    """A vector of `n` that changes nothing but its `ranges`, ascending slices; there it has the quantized `entries`, in order.

    Outside the ranges a dense vector holds -0.0, the one number that added to any float, -0.0 included, leaves its bits.
    """

    n: int
    ranges: tuple[slice, ...]
    entries: QuantizedVector

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        kept = self.entries.sparse()
        whole = np.full(self.n, -0.0, np.float32)
        if kept is not None:
            whole[self._indices_of(kept.indices)] = kept.values
        else:
            values = self.entries.dense()
            for part, begin in zip(self.ranges, self._begins, strict=True):
                whole[part] = values[begin : begin + part.stop - part.start]
        return whole

    def sparse(self) -> Sparse | None:
        """Return the kept entries; None if they are more than half of the vector, and all of the ranges."""
        kept = self.entries.sparse()
        if kept is not None:
            return Sparse(self.n, self._indices_of(kept.indices), kept.values)
        if 2 * self.entries.n > self.n:
            return None
        return Sparse(self.n, self._indices_of(np.arange(self.entries.n)), self.entries.dense())

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the entries to the ranges of `vector` (n,), in place and in the precision of `vector`."""
        kept = self.entries.sparse()
        if kept is not None:
            Sparse(self.n, self._indices_of(kept.indices), kept.values).add_to(vector, weight)
            return
        values = self.entries.dense()
        for part, begin in zip(self.ranges, self._begins, strict=True):
            own = values[begin : begin + part.stop - part.start]
            vector[part] += own if weight == 1.0 else np.multiply(own, weight, dtype=vector.dtype)

    @cached_property
    def _begins(self) -> NDArray[np.int64]:
        """The index of the first entry of each range among the `entries`."""
        sizes = [part.stop - part.start for part in self.ranges]
        return np.cumsum([0, *sizes])[:-1]

    def _indices_of(self, entries: Indices) -> Indices:
        """Return the indices in the vector, int64 (k,), of these among the `entries`, ascending."""
        if not self.ranges:
            return entries
        offsets = np.array([part.start for part in self.ranges]) - self._begins
        moved: Indices = entries + offsets[np.searchsorted(self._begins, entries, side="right") - 1]
        return moved
