"""A vector in consecutive pieces, each quantized in its own way, and the matrix that is the product of two thin ones."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, Vector
from fedcomp.quantized.levels import Levels
from fedcomp.quantized.vectors import Dense, Ternary, add_blocks, collect

Matrix = NDArray[np.float32]

MAX_RANK = 128
"""The largest rank of a product.  Each entry takes as many multiplications; a rank above 32 is hardly of use."""
MAX_PRODUCT = MAX_FLOAT32 * (1 - 2.0**-10)
"""The largest `bound` of a product, with room for rounding below the end of float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The entries of all `pieces`, one piece after the other."""

    pieces: tuple["Piece", ...]

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return sum(piece.n for piece in self.pieces)

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        for part, piece in self._parts():
            if isinstance(piece, Ternary):
                whole[part] = 0
                piece.add_to(whole[part])
            else:
                collect(piece.blocks(), whole[part])
        return whole

    def sparse(self) -> None:
        """Return None: pieces may be dense."""

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, piece by piece."""
        for part, piece in self._parts():
            if isinstance(piece, Ternary):
                piece.add_to(vector[part], weight)
            else:
                add_blocks(piece.blocks(), vector[part], weight)

    def _parts(self) -> Iterator[tuple[slice, "Piece"]]:
        start = 0
        for piece in self.pieces:
            yield slice(start, start + piece.n), piece
            start += piece.n


def join_dense(pieces: "Iterable[Piece]") -> Segments:
    """Return the pieces, with neighbouring dense pieces joined into one."""
    joined: list[Piece] = []
    for dense, run in groupby(pieces, key=lambda piece: isinstance(piece, Dense)):
        same = list(run)
        joined += [Dense(np.concatenate([one.vector for one in same if isinstance(one, Dense)]))] if dense else same
    return Segments(tuple(joined))


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
        """An upper bound of all entries and partial sums: the sum over r of the products of the factors' largest magnitudes."""
        peaks = np.abs(self.left).max(axis=1).astype(np.float64) * np.abs(self.right).max(axis=1)
        return math.fsum(peaks)  # exactly rounded, in any order

    def dense(self) -> Vector:
        """Return the entries, float32 (n,)."""
        return collect(self.blocks(), np.empty(self.n, np.float32))

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order; read the entries before you ask for the next block.

        The products of an entry are added in the order of r, so that the sum is the same on every machine.
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
                stop = min(start + values.size, self.n)
                yield slice(start, stop), values.ravel()[: stop - start]


Piece = Dense | Levels | Product | Ternary


def right_factors(quantized: object) -> Vector:
    """Return the right factors of all products among the pieces of a vector, joined in order, each row by row."""
    pieces = quantized.pieces if isinstance(quantized, Segments) else ()
    return np.concatenate([np.empty(0, np.float32), *(one.right.ravel() for one in pieces if isinstance(one, Product))])


def worthwhile(rows: int, columns: int, rank: int) -> bool:
    """Return whether factors of `rank` are fewer numbers than the matrix has."""
    return rank * (rows + columns) < rows * columns
