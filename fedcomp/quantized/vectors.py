"""The contract of a quantized vector, and the simplest ones: dense, sparse, ternary and seeded."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import RandomStream, Vector, block_slices

Indices = NDArray[np.int64]
NUM_SEEDS = 2**64


class QuantizedVector(Protocol):
    """A quantized vector of `n` entries."""

    @property
    def n(self) -> int:
        """Entries of the vector, zeros included."""
        ...

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        ...

    def sparse(self) -> "Sparse | None":
        """Return the kept entries; None if the vector keeps all entries."""
        ...

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector` (n,), in place and in the precision of `vector`."""
        ...


class AllEntries(ABC):
    """A quantized vector that keeps all entries, and yields them block by block."""

    __slots__ = ()

    @property
    @abstractmethod
    def n(self) -> int:
        """Entries of the vector."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order; read the entries before you ask for the next block."""

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return collect(self.blocks(), np.empty(self.n, np.float32))

    def sparse(self) -> None:  # noqa: B027 - this is all it does
        """Return None: every entry is present."""

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, block by block."""
        add_blocks(self.blocks(), vector, weight)


class KeptEntries(ABC):
    """A quantized vector that keeps a few entries, and computes their values when they are needed."""

    __slots__ = ()

    @abstractmethod
    def sparse(self) -> "Sparse":
        """Return the kept entries."""

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self.sparse().dense()

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the kept entries to `vector`, O(k)."""
        self.sparse().add_to(vector, weight)


class KeptBlocks(KeptEntries):
    """A quantized vector that keeps the entries at `indices` of `n`, and computes their values block by block."""

    __slots__ = ()

    n: int
    indices: Indices

    @abstractmethod
    def kept_blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, values of those kept entries) in order."""

    def sparse(self) -> "Sparse":
        """Return the kept entries."""
        return Sparse(self.n, self.indices, collect(self.kept_blocks(), np.empty(self.indices.size, np.float32)))

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        whole = np.zeros(self.n, np.float32)
        for part, block in self.kept_blocks():
            whole[self.indices[part]] = block
        return whole

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the kept entries to `vector`, O(k)."""
        for part, block in self.kept_blocks():
            np.add.at(vector, self.indices[part], np.multiply(block, weight, dtype=vector.dtype))


def collect(blocks: Iterable[tuple[slice, Vector]], out: Vector) -> Vector:
    """Write the blocks into `out`, float32 (n,), and return it."""
    for part, values in blocks:
        out[part] = values
    return out


def add_blocks(blocks: Iterable[tuple[slice, Vector]], vector: NDArray[Any], weight: float) -> None:
    """Add ``weight`` times the blocks to `vector`, in its own precision."""
    for part, values in blocks:
        vector[part] += values if weight == 1.0 else np.multiply(values, weight, dtype=vector.dtype)


@dataclass(frozen=True, slots=True)
class Dense(AllEntries):
    """Every entry, float32."""

    vector: Vector

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return int(self.vector.size)

    def dense(self) -> Vector:
        """Return the vector, float32 (n,), itself."""
        return self.vector

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order."""
        for part in block_slices(self.n):
            yield part, self.vector[part]


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
        for part in block_slices(self.values.size):
            values = np.multiply(self.values[part], weight, dtype=vector.dtype)
            np.add.at(vector, self.indices[part], values)  # faster than +=, and no index occurs twice


@dataclass(frozen=True, slots=True, eq=False)
class Compact(KeptEntries):
    """A `Sparse` in two thirds of the memory: `indices` uint32 (k,) ascending, `values` float32 (k,)."""

    n: int
    indices: NDArray[np.uint32]
    values: Vector

    @classmethod
    def of(cls, sparse: Sparse) -> "Compact":
        """Return `sparse`, of at most 2^32 entries, in this form."""
        return cls(sparse.n, sparse.indices.astype(np.uint32), sparse.values)

    def sparse(self) -> Sparse:
        """Return the kept entries."""
        return Sparse(self.n, self.indices.astype(np.int64), self.values)


@dataclass(frozen=True, slots=True)
class Ternary:
    """Kept entries that share one magnitude: `indices` int64 (k,) ascending, `negative` bool (k,), `magnitude` > 0."""

    n: int
    indices: Indices
    negative: NDArray[np.bool_]
    magnitude: np.float32

    def sparse(self) -> Sparse:
        """Return the kept entries, each ±magnitude."""
        values, signed = np.empty(self.indices.size, np.float32), np.array([self.magnitude, -self.magnitude])
        for part in block_slices(values.size):  # in blocks: `take` converts each index to eight bytes
            signed.take(self.negative[part].view(np.int8), out=values[part], mode="clip")
        return Sparse(self.n, self.indices, values)

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        whole = np.zeros(self.n, np.float32)
        self.add_to(whole)
        return whole

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the kept entries to `vector`, O(k)."""
        signed = np.multiply([self.magnitude, -self.magnitude], weight, dtype=vector.dtype)
        for part in block_slices(self.indices.size):
            np.add.at(vector, self.indices[part], signed.take(self.negative[part].view(np.int8)))


@dataclass(frozen=True, slots=True, eq=False)
class Seeded(KeptEntries):
    """The kept entries of a vector of `n`: `values` float32 (k,) at `indices`.  These are `seeded_indices`, and not sent."""

    n: int
    seed: int
    indices: Indices
    values: Vector

    def sparse(self) -> Sparse:
        """Return the kept entries."""
        return Sparse(self.n, self.indices, self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Masked(KeptEntries):
    """A vector of `n` that is zero except at `indices`, int64 (k,) ascending, where it has the quantized `entries` (k,)."""

    n: int
    indices: Indices
    entries: QuantizedVector

    def sparse(self) -> Sparse:
        """Return the kept entries."""
        kept = self.entries.sparse()
        if kept is None:
            return Sparse(self.n, self.indices, self.entries.dense())
        return Sparse(self.n, self.indices[kept.indices], kept.values)


def l2_norm(vector: QuantizedVector) -> float:
    """Return the l2 norm of the dense vector, summed in float64."""
    sparse = vector.sparse()
    values = vector.dense() if sparse is None else sparse.values
    squares = (float(np.square(values[part], dtype=np.float64).sum()) for part in block_slices(values.size))
    return math.sqrt(math.fsum(squares))


def held_bytes(value: object) -> int:
    """Return the bytes of the arrays that a quantized vector and its parts hold."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, tuple):
        return sum(map(held_bytes, cast(tuple[object, ...], value)))
    if is_dataclass(value):
        return sum(held_bytes(getattr(value, each.name)) for each in fields(value))
    return 0


def seeded_indices(n: int, k: int, seed: int) -> Indices:
    """Return the `k` indices below `n` that belong to `seed` modulo 2^64, ascending; every set is equally likely."""
    return RandomStream(seed % NUM_SEEDS).subset(n, k)
