"""What quantizers make of a vector and entropy codes turn into bytes: values, with no idea of either."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import NonFiniteError
from fedcomp.stage import Vector

Indices = NDArray[np.int64]

BLOCK = 1 << 16
"""Entries worked on at a time: a block and its temporaries stay in the processor's cache."""


class Symbols(Protocol):
    """A quantized vector of `n` entries."""

    @property
    def n(self) -> int:
        """Entries of the vector, zeros included."""
        ...

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        ...

    def sparse(self) -> "Sparse":
        """Return the entries that are not zero by design."""
        ...

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector` (n,), in place and in the precision of `vector`."""
        ...


class LazySum:
    """The entry-wise sum of one or two float32 vectors of one length, summed block by block while it is read.

    A sender's residual and its update are never summed into a temporary of the vector's size.  `in_place` is for a sum that is
    known to be finite: the first reading leaves it in the first part's memory, which saves a pass over both.
    """

    __slots__ = ("in_place", "parts")

    def __init__(self, *parts: Any, in_place: bool = False) -> None:
        """Take numpy vectors, or torch tensors of one device."""
        self.parts, self.in_place = parts, in_place

    @property
    def n(self) -> int:
        """Entries of each part and of the sum."""
        return int(self.parts[0].shape[0])

    @property
    def block_size(self) -> int:
        """Entries of a block, the last one apart: small beside the vector, and small enough for the cache."""
        return min(self.n, BLOCK if self.n >= 64 * BLOCK else BLOCK // 2)

    def blocks(self) -> Iterator[tuple[int, Vector]]:
        """Yield (start, entries) in order; the entries are to be read before the next block, never written.

        Raises `NonFiniteError` at a block that holds NaN or infinity.
        """
        size = self.block_size
        if self.in_place and len(self.parts) == 2:
            yield from self._settling(*self.parts, size)
            return
        buffer = np.empty(size if len(self.parts) == 2 else 0, np.float32)
        for start in range(0, self.n, size):
            parts = [part[start : start + size] for part in self.parts]
            with np.errstate(over="ignore", invalid="ignore"):
                block = parts[0] if len(parts) == 1 else np.add(parts[0], parts[1], out=buffer[: parts[0].size])
            if not self.in_place and not np.isfinite(block).all():
                at = int(np.flatnonzero(~np.isfinite(block))[0])
                raise NonFiniteError(start + at, float(block[at]))
            yield start, block

    def _settling(self, first: Vector, second: Vector, size: int) -> Iterator[tuple[int, Vector]]:
        done = 0
        try:
            for start in range(0, self.n, size):
                done = min(start + size, self.n)
                yield start, np.add(first[start:done], second[start:done], out=first[start:done])
        finally:
            first[done:] += second[done:]
            self.parts = (first,)

    def settle(self) -> Any:
        """Return the sum in the first part's memory."""
        if len(self.parts) == 2:
            first, second = self.parts
            first += second
            self.parts = (first,)
        return self.parts[0]

    def dense(self) -> Vector:
        """Return the sum as one new vector, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        for start, block in self.blocks():
            whole[start : start + block.size] = block
        return whole


@dataclass(frozen=True, slots=True)
class Dense:
    """Every entry as it is."""

    vector: Vector

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return int(self.vector.size)

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self.vector

    def sparse(self) -> "Sparse":
        """Return every entry with its index."""
        return Sparse(self.n, np.arange(self.n, dtype=np.int64), self.vector)

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, block by block."""
        for start in range(0, self.n, BLOCK):
            part = slice(start, start + BLOCK)
            vector[part] += (
                self.vector[part] if weight == 1.0 else np.multiply(self.vector[part], weight, dtype=vector.dtype)
            )


@dataclass(frozen=True, slots=True)
class Sparse:
    """The kept entries of a vector of `n`: `indices` int64 (k,) ascending, `values` float32 (k,); the rest is zero."""

    n: int
    indices: Indices
    values: Vector

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        whole = np.zeros(self.n, np.float32)
        whole[self.indices] = self.values
        return whole

    def sparse(self) -> "Sparse":
        """Return itself."""
        return self

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the kept entries to `vector`, O(k)."""
        for start in range(0, self.values.size, BLOCK):
            part = slice(start, start + BLOCK)
            values = np.multiply(self.values[part], weight, dtype=vector.dtype)
            np.add.at(vector, self.indices[part], values)  # no index twice; faster than to gather and scatter


@dataclass(frozen=True, slots=True)
class Ternary:
    """Kept entries that share one magnitude: `indices` int64 (k,) ascending, `negative` bool (k,), `magnitude` > 0."""

    n: int
    indices: Indices
    negative: NDArray[np.bool_]
    magnitude: np.float32

    def sparse(self) -> Sparse:
        """Return the kept entries, each ±magnitude."""
        return Sparse(
            self.n, self.indices, np.array([self.magnitude, -self.magnitude]).take(self.negative.view(np.int8))
        )

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self.sparse().dense()

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the kept entries to `vector`, O(k)."""
        signed = np.multiply([self.magnitude, -self.magnitude], weight, dtype=vector.dtype)
        for start in range(0, self.indices.size, BLOCK):
            part = slice(start, start + BLOCK)
            np.add.at(vector, self.indices[part], signed.take(self.negative[part].view(np.int8)))
