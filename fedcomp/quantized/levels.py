"""Entries that have one of a few levels: all entries (`Levels`), or the kept ones (`SparseLevels`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, Vector, block_slices
from fedcomp.quantized.vectors import AllEntries, Indices, KeptBlocks

LINEAR, POWERS, EXPONENTS = range(3)
Groups = int | tuple[int, ...]
"""Which entries share a scale: buckets of that many entries (the last one may be shorter), or tensors of these sizes."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The values of the `count` levels of a `kind`, ascending, in a group of scale 1.

    LINEAR: from -1 to 1 in equal steps, (2 l - L + 1) / (L - 1).  POWERS: -1, -1/2, ..., 0, ..., 1/2, 1, an odd number.
    EXPONENTS: 0 and ±2^e of every normal float32, 509 of them.
    """

    kind: int
    count: int

    def values(self) -> Vector:
        """Return the value of each level, float32 (count,), read-only."""
        return _values(self.kind, self.count)


@lru_cache(maxsize=32)
def _values(kind: int, count: int) -> Vector:
    if kind == LINEAR:
        values = (2 * np.arange(count) - (count - 1)).astype(np.float32) / np.float32(count - 1)
    else:
        first = 127 if kind == EXPONENTS else 0
        powers = np.ldexp(np.float32(1), first - np.arange(count // 2))
        values = np.concatenate((-powers, [0], powers[::-1])).astype(np.float32)
    values.flags.writeable = False
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Levels(AllEntries):
    """The level of every entry: the entry is the level's value times its group's scale, plus its group's offset.

    `levels` are uint8 or uint16 (n,), below ``scale.count``.  `scales` and `offsets` are float32, one per group; `offsets`
    may be None.
    """

    levels: NDArray[Any]
    scale: Scale
    scales: Vector
    offsets: Vector | None
    groups: Groups

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return int(self.levels.size)

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order."""
        table = self.scale.values()
        for part, rows, groups in _parts(self.n, self.groups):
            values = table.take(self.levels[part], mode="clip")
            folded = values.reshape(rows, -1)
            folded *= self.scales[groups, None]
            if self.offsets is not None:
                folded += self.offsets[groups, None]
            yield part, values


def level_type(count: int) -> np.dtype[Any]:
    """Return the dtype of `count` levels, uint8 or uint16."""
    return np.dtype(np.uint8 if count <= 256 else np.uint16)


def group_count(n: int, groups: Groups) -> int:
    """Return how many groups `n` entries have."""
    return -(-n // groups) if isinstance(groups, int) else len(groups)


def _parts(n: int, groups: Groups) -> Iterator[tuple[slice, int, slice]]:
    """Yield (entries, number of rows, groups of the rows), about a block each.  The entries fold into whole rows."""
    if isinstance(groups, int) and groups > BLOCK_ENTRIES:
        groups = (groups,) * (n // groups) + ((n % groups,) if n % groups else ())
    if isinstance(groups, int):
        rows = max(1, BLOCK_ENTRIES // groups)
        whole = n // groups
        for row in range(0, whole, rows):
            end = min(row + rows, whole)
            yield slice(row * groups, end * groups), end - row, slice(row, end)
        if n % groups:
            yield slice(whole * groups, n), 1, slice(whole, whole + 1)
        return
    start = 0
    for group, size in enumerate(groups):
        for offset in range(0, size, BLOCK_ENTRIES):
            yield slice(start + offset, start + min(offset + BLOCK_ENTRIES, size)), 1, slice(group, group + 1)
        start += size


@dataclass(frozen=True, slots=True, eq=False)
class SparseLevels(KeptBlocks):
    """The kept entries of a vector of `n`, each ± the magnitude of a level.

    `indices` int64 (k,) ascending, `negative` bool (k,), `levels` uint8 (k,), `magnitudes` float32 (L,).  If `base` is not
    0, magnitude l is the first magnitude divided by ``base**l`` (`geometric`), and only the first one is sent.
    """

    n: int
    indices: Indices
    negative: NDArray[np.bool_]
    levels: NDArray[np.uint8]
    magnitudes: Vector
    base: float = 0.0

    def kept_blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, values of those kept entries) in order."""
        count = self.magnitudes.size
        signed = np.concatenate((self.magnitudes, -self.magnitudes))
        for part in block_slices(self.indices.size):
            place = np.multiply(self.negative[part], count, dtype=np.uint8 if count <= 128 else np.uint16)
            place += self.levels[part]
            yield part, signed.take(place)


def geometric(first: np.float32, base: float, count: int) -> Vector:
    """Return ``first / base**l`` for l = 0 ... count - 1, float32, by divisions only: the same bits on every machine."""
    values = np.empty(count, np.float64)
    value = float(first)
    for level in range(count):
        values[level] = value
        value /= base
    return values.astype(np.float32)
