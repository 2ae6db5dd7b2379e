"""Sketches of vectors: sums from which the squared norms of the vector, and of its tensors of each shape, follow."""

from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, Vector, block_slices, check_range
from fedcomp.wire import Layout

SKETCH = 1 << 11
"""Numbers of a sketch; it divides `BLOCK_ENTRIES`."""
MAX_GROUPS = 16
"""The largest number of groups.  The last one holds the tensors of all further shapes."""
MAX_RATIO = 4.0
"""The largest ratio of a group, also of one of which nothing is published yet."""
Sketch = NDArray[np.float64]
"""float64 (SKETCH,): sums of a vector's entries."""


@dataclass(frozen=True, slots=True)
class Sketcher:
    """Makes sketches of the vectors of a model, with sums of their own for the tensors of each shape.

    Tensors of one shape have one role in most models, and learn at one pace: the matrices A of low-rank adapters, or B.
    The sums of a group give its squared norm with a relative standard deviation of 3 percent if there is one group, and of 12.5
    percent with nine groups or more.

    Attributes:
        groups: For each group its parts of the vector; the groups with the most entries come first.
    """

    groups: tuple[tuple[slice, ...], ...]

    @classmethod
    def of(cls, layout: Layout) -> "Sketcher":
        """Return the one for vectors of `layout`."""
        by_shape = defaultdict[tuple[int, ...], list[slice]](list)
        for tensor, part in layout.filled:
            by_shape[tensor.number_shape].append(part)
        groups = sorted(map(tuple, by_shape.values()), key=_entries, reverse=True)
        kept, rest = groups[: MAX_GROUPS - 1], groups[MAX_GROUPS - 1 :]
        return cls((*kept, tuple(chain(*rest))) if rest else tuple(kept))

    def sketch(self, vector: Vector) -> Sketch:
        """Return `SKETCH` sums of the entries of `vector`, float32 (n,), with random signs that depend on the place alone.

        It is linear, and its expected squared norm is that of the vector.  Alon, Matias, Szegedy, STOC 1996, with one sum for
        each place modulo the number of sums: Charikar, Chen, Farach-Colton, ICALP 2002.  Each block has the signs at a random
        place of a table.
        """
        table, drawn = _signs()
        rng, sums = deepcopy(drawn), np.zeros(SKETCH)
        signed = np.empty(BLOCK_ENTRIES + SKETCH, np.float32)
        for group, own in zip(self.groups, self._by_group(sums), strict=False):
            start = 0  # a block goes on where the one before has ended
            for part in group:
                for block in block_slices(part.stop - part.start):
                    size, first = block.stop - block.start, rng.integers(BLOCK_ENTRIES)
                    end = start + size
                    rows = -(-end // own.size)
                    signed[:start] = signed[end : rows * own.size] = 0
                    np.multiply(vector[part][block], table[first : first + size], out=signed[start:end])
                    own += signed[: rows * own.size].reshape(rows, -1).sum(0)
                    start = end % own.size
        return sums

    def ratio(self, unpublished: Sketch, published: Sketch) -> float:
        """Return the mean over entries of each group's ratio of squared norms, `unpublished` over `published`.

        A ratio is at most `MAX_RATIO`.  Groups that are 0 in both do not count; without any other, the mean is 0.
        """
        over, under = (np.square(self._by_group(each)).sum(1)[: len(self.groups)] for each in (unpublished, published))
        moved = (over > 0) | (under > 0)
        if not moved.any():
            return 0.0
        ratios = np.full(len(self.groups), MAX_RATIO)
        np.divide(over, under, out=ratios, where=over < MAX_RATIO * under)
        entries = [_entries(group) for group in self.groups]
        return float(np.average(ratios[moved], weights=np.array(entries)[moved]))

    def _by_group(self, sums: Sketch) -> NDArray[np.float64]:
        """Return a view of `sums` with a row for each group, and perhaps further ones."""
        return sums.reshape(1 << (len(self.groups) - 1).bit_length() if self.groups else 1, -1)


def check_sketch(numbers: Sequence[float]) -> None:
    """Raise `ValueError` or `TypeError` for what is neither the numbers of a sketch nor empty."""
    if len(numbers) not in (0, SKETCH):
        raise ValueError(f"a sketch of {len(numbers)} numbers; it has {SKETCH}")
    for number in numbers:
        check_range("sketch", number)


@cache
def _signs() -> tuple[Vector, np.random.Generator]:
    """Return a table of random signs, float32 (2 * BLOCK_ENTRIES,), and the generator that has drawn them."""
    rng = np.random.default_rng(0)
    return rng.choice(np.array([-1, 1], np.float32), 2 * BLOCK_ENTRIES), rng


def _entries(parts: tuple[slice, ...]) -> int:
    return sum(part.stop - part.start for part in parts)
