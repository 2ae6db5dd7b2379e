"""Kept entries at positions drawn from a seed: the receiver draws them again, so no index is sent."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedcomp.core import RandomStream, Vector
from fedcomp.quantized.vectors import Indices, Sparse

NUM_SEEDS = 2**64


@dataclass(frozen=True, slots=True, eq=False)
class Seeded:
    """The kept entries of a vector of `n`: `values` float32 (k,) at `indices`, which are `seeded_indices`."""

    n: int
    seed: int
    indices: Indices
    values: Vector

    def sparse(self) -> Sparse:
        """Return the kept entries."""
        return Sparse(self.n, self.indices, self.values)

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self.sparse().dense()

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the kept entries to `vector`, O(k)."""
        self.sparse().add_to(vector, weight)


def seeded_indices(n: int, k: int, seed: int) -> Indices:
    """Return the `k` indices below `n` that belong to `seed`, taken modulo 2^64: ascending; every set is equally likely."""
    return RandomStream(seed % NUM_SEEDS).subset(n, k)
