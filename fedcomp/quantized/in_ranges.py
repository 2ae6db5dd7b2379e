"""A quantized vector inside a longer one: the entries outside its ranges do not change."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized.vectors import Indices, QuantizedVector, Sparse


@dataclass(frozen=True, eq=False)
class Ranges:
    """Parts of a vector: `slices`, ascending, each with a start and a stop.  Their entries are numbered from 0, in order."""

    slices: tuple[slice, ...]

    @cached_property
    def size(self) -> int:
        """The number of entries."""
        return sum(part.stop - part.start for part in self.slices)

    def pairs(self) -> Iterator[tuple[slice, slice]]:
        """Yield each part of the vector with the numbers of its entries."""
        for part, begin in zip(self.slices, self._begins.tolist(), strict=True):
            yield part, slice(begin, begin + part.stop - part.start)

    def indices_of(self, numbers: Indices) -> Indices:
        """Return the indices in the vector, int64 (k,), of the entries with these numbers."""
        moved: Indices = numbers + self._offsets[np.searchsorted(self._begins, numbers, side="right") - 1]
        return moved

    def numbers_of(self, indices: Indices) -> Indices:
        """Return the numbers, int64 (k,), of the entries with these indices in the vector."""
        starts = self._begins + self._offsets
        moved: Indices = indices - self._offsets[np.searchsorted(starts, indices, side="right") - 1]
        return moved

    @cached_property
    def _begins(self) -> Indices:
        """The number of the first entry of each part."""
        return np.cumsum([0, *(part.stop - part.start for part in self.slices)], dtype=np.int64)[:-1]

    @cached_property
    def _offsets(self) -> Indices:
        """The index minus the number of the entries of each part."""
        return np.array([part.start for part in self.slices], np.int64) - self._begins


@dataclass(frozen=True, eq=False)
class InRanges:
    """A vector of `n` entries that changes only its `ranges`, where it has the quantized `entries`, in order.

    Outside the ranges a dense vector holds -0.0: adding it to any float, -0.0 included, leaves the bits as they are.
    """

    n: int
    ranges: Ranges
    entries: QuantizedVector

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        kept = self.entries.sparse()
        whole = np.full(self.n, -0.0, np.float32)
        if kept is not None:
            whole[self.ranges.indices_of(kept.indices)] = kept.values
        else:
            values = self.entries.dense()
            for part, own in self.ranges.pairs():
                whole[part] = values[own]
        return whole

    def sparse(self) -> Sparse | None:
        """Return the kept entries; None if all entries of the ranges are kept and are more than half of the vector."""
        kept = self.entries.sparse()
        if kept is not None:
            return Sparse(self.n, self.ranges.indices_of(kept.indices), kept.values)
        if 2 * self.entries.n > self.n:
            return None
        return Sparse(self.n, self.ranges.indices_of(np.arange(self.entries.n)), self.entries.dense())

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the entries to the ranges of `vector` (n,), in place and in the precision of `vector`."""
        kept = self.entries.sparse()
        if kept is not None:
            Sparse(self.n, self.ranges.indices_of(kept.indices), kept.values).add_to(vector, weight)
            return
        values = self.entries.dense()
        for part, own in self.ranges.pairs():
            vector[part] += values[own] if weight == 1.0 else np.multiply(values[own], weight, dtype=vector.dtype)
