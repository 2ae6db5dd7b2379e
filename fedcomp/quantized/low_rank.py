"""Matrices as products of two thin ones, between stretches of entries as they are."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, Vector
from fedcomp.quantized.vectors import Dense

Matrix = NDArray[np.float32]

MAX_PRODUCT = MAX_FLOAT32 * (1 - 2.0**-10)
"""The largest `bound` of a product: rounding does not lead beyond float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """The first `n` entries, row by row, of the matrix whose entry i, j is the sum of ``left[r, i] right[r, j]`` over r.

    `left` float32 (rank, rows), `right` float32 (rank, columns).  Only entries of the last row may lie beyond `n`.
    """

    n: int
    left: Matrix
    right: Matrix

    @property
    def bound(self) -> float:
        """What no entry, nor sum on the way to it, is above: the sum over r of the largest magnitudes' product."""
        peaks = np.abs(self.left).max(axis=1).astype(np.float64) * np.abs(self.right).max(axis=1)
        return math.fsum(peaks)  # exactly rounded, in whatever order

    def blocks(self) -> Iterator[tuple[int, Vector]]:
        """Yield (start, entries) in order; the entries are to be read before the next block.

        Products are added in the order of r, one after the other, so that the sum is the same on every machine.
        """
        (rank, rows), columns = self.left.shape, self.right.shape[1]
        tall, wide = min(rows, max(1, BLOCK_ENTRIES // columns)), min(columns, BLOCK_ENTRIES)
        total, term = np.empty(tall * wide, np.float32), np.empty(tall * wide if rank > 1 else 0, np.float32)
        for row in range(0, rows, tall):
            for column in range(0, min(columns, self.n - row * columns), wide):
                ends = slice(row, min(row + tall, rows)), slice(column, min(column + wide, columns))
                shape = ends[0].stop - row, ends[1].stop - column
                values = total[: shape[0] * shape[1]].reshape(shape)
                np.multiply(self.left[0, ends[0], None], self.right[0, ends[1]], out=values)
                for r in range(1, rank):
                    product = term[: values.size].reshape(shape)
                    values += np.multiply(self.left[r, ends[0], None], self.right[r, ends[1]], out=product)
                start = row * columns + column
                yield start, values.ravel()[: self.n - start]

    def dense(self) -> Vector:
        """Return the entries, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        for start, values in self.blocks():
            whole[start : start + values.size] = values
        return whole

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the entries to `vector`, block by block."""
        for start, values in self.blocks():
            part = vector[start : start + values.size]
            part += values if weight == 1.0 else np.multiply(values, weight, dtype=vector.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class LowRankFactors:
    """A vector in consecutive parts: matrices of low rank, and what lies between them."""

    parts: tuple[Product | Dense, ...]

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return sum(part.n for part in self.parts)

    @property
    def right(self) -> Vector:
        """The right factors of all matrices one after the other, each row by row."""
        return np.concatenate(
            [np.empty(0, np.float32), *(part.right.ravel() for part in self.parts if isinstance(part, Product))]
        )

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        start = 0
        for part in self.parts:
            blocks = part.blocks() if isinstance(part, Product) else [(0, part.vector)]
            for at, values in blocks:
                whole[start + at : start + at + values.size] = values
            start += part.n
        return whole

    def sparse(self) -> None:
        """Return None: every entry is there."""
        return

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, part by part."""
        start = 0
        for part in self.parts:
            part.add_to(vector[start : start + part.n], weight)
            start += part.n


def worthwhile(rows: int, columns: int, rank: int) -> bool:
    """Say whether factors of `rank` are fewer numbers than the matrix has."""
    return rank * (rows + columns) < rows * columns
