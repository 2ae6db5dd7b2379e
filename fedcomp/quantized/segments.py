"""A vector in consecutive pieces, each quantized in its own way."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized.blocks import collect
from fedcomp.quantized.levels import Levels
from fedcomp.quantized.vectors import Dense, Ternary

Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The entries of all `pieces`, one piece after the other."""

    pieces: tuple[Levels | Dense | Ternary, ...]

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
            piece.add_to(vector[part], weight)

    def _parts(self) -> Iterator[tuple[slice, Levels | Dense | Ternary]]:
        start = 0
        for piece in self.pieces:
            yield slice(start, start + piece.n), piece
            start += piece.n


def join_dense(pieces: Iterable[Piece | Dense]) -> Iterator[Piece | Dense]:
    """Yield the pieces, runs of dense ones as one."""
    for dense, run in groupby(pieces, key=lambda piece: isinstance(piece, Dense)):
        if dense:
            yield Dense(np.concatenate([piece.vector for piece in run if isinstance(piece, Dense)]))
        else:
            yield from run
