"""The k largest entries of every chunk of the vector: positions cost few bits, and every chunk sends some."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, Vector, check_int
from fedcomp.quantize.topk import check_density, num_kept
from fedcomp.quantized import Indices, Sparse


@dataclass(frozen=True, slots=True)
class ChunkedTopK:
    """Keep of each `chunk` entries the k = max(1, ceil(density chunk)) of largest magnitude, of equal ones the lower index.

    Exact zeros are never kept.  The last chunk may be shorter, and its k is that of its length.  Sarfi et al. (SparseLoCo),
    arXiv:2508.15706, cut each tensor into chunks of 64 x 64; here chunks are consecutive entries of the whole vector.
    """

    density: float
    chunk: int

    def __post_init__(self) -> None:
        check_density(self.density)
        check_int("chunk", self.chunk, 1, 1 << 20, "the entries of a chunk")

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        rows = max(1, value.block_size // self.chunk)
        indices: list[Indices] = []
        values: list[Vector] = []
        for start, block in value.blocks(rows * self.chunk):
            cut = block.size // self.chunk * self.chunk
            for begin, end in ((0, cut), (cut, block.size)):
                if begin < end:
                    part = block[begin:end].reshape(-1, min(self.chunk, end - begin))
                    found = _candidates(part, num_kept(self.density, part.shape[1]))
                    indices.append(found + (start + begin))
                    values.append(part.ravel()[found])
        index, entries = np.concatenate(indices), np.concatenate(values)
        last = num_kept(self.density, (value.n - 1) % self.chunk + 1)
        keep = _largest_in_rows(
            index // self.chunk, np.abs(entries), num_kept(self.density, self.chunk), last, value.n // self.chunk
        )
        return Sparse(value.n, index[keep], entries[keep])


def _candidates(rows: Vector, k: int) -> Indices:
    """Return the positions, in `rows` (m, c) as one vector, of entries that may be among the k largest of their row."""
    magnitude = np.abs(rows)
    bound = _bounds(magnitude, k)
    reached = np.flatnonzero(magnitude >= bound[:, None])
    return reached if bound.all() else reached[magnitude.ravel()[reached] > 0]


def _largest_in_rows(row: Indices, magnitude: Vector, k: int, last: int, whole: int) -> NDArray[np.bool_]:
    """Return which entries are among the k of largest magnitude of their row, or the `last` largest of row `whole`.

    `row` ascends; of equal magnitudes the first ones count.
    """
    counts = np.bincount(row)
    room = np.full(counts.size, k)
    room[whole:] = last
    keep = np.ones(row.size, np.bool_)
    ends = np.cumsum(counts)
    full = np.flatnonzero(counts > room)
    # A table with a line for each row that has too many, padded with -1; some lines at a time.
    for group in np.array_split(full, max(1, int(counts[full].max(initial=0)) * full.size // BLOCK_ENTRIES)):
        if not group.size:
            continue
        column = np.arange(int(counts[group].max()))
        there = column < counts[group, None]
        place = (ends - counts)[group, None] + column
        table = np.where(there, magnitude[np.minimum(place, row.size - 1)], np.float32(-1))
        ascending = np.sort(table, axis=1)
        least = ascending[np.arange(group.size), column.size - room[group], None]
        chosen = table > least
        ties = table == least
        chosen |= ties & (np.cumsum(ties, axis=1) <= (room[group] - chosen.sum(axis=1))[:, None])
        keep[place[there]] = chosen[there]
    return keep


def _bounds(magnitude: Vector, k: int) -> NDArray[np.float32]:
    """Return for each row a magnitude that at least k of its entries reach, 0 if none is easily found."""
    rows, width = magnitude.shape
    groups = 1 << max(0, (2 * k - 1).bit_length())
    if groups * 2 > width or width % groups:
        return np.zeros((rows,), np.float32)
    maxima = np.empty((rows, groups), np.float32)
    magnitude.reshape(rows, width // groups, groups).max(axis=1, out=maxima)
    maxima.partition(groups - k, axis=1)
    return maxima[:, groups - k]
