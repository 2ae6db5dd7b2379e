"""A vector in consecutive pieces, each with symbols of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.quantized.levels import Levels
from fedcomp.quantized.vectors import Dense


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The entries of each of `pieces`, one piece after the other."""

    pieces: tuple[Levels | Dense, ...]

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return sum(piece.n for piece in self.pieces)

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        whole = np.empty(self.n, np.float32)
        for part, piece in self._parts():
            piece.put_into(whole[part])
        return whole

    def sparse(self) -> None:
        """Return None: every entry is there."""
        return

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, piece by piece."""
        for part, piece in self._parts():
            piece.add_to(vector[part], weight)

    def _parts(self) -> Iterator[tuple[slice, Levels | Dense]]:
        start = 0
        for piece in self.pieces:
            yield slice(start, start + piece.n), piece
            start += piece.n
