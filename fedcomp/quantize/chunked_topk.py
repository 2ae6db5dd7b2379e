"""The k largest entries of every chunk of the vector: positions cost few bits, and no chunk goes unheard."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.lazy_sum import LazySum
from fedcomp.settings import whole, within
from fedcomp.stage import Vector
from fedcomp.symbols import Indices, Sparse


@dataclass(frozen=True, slots=True)
class ChunkedTopK:
    """Keep of each `chunk` entries the k = max(1, ceil(density chunk)) of largest magnitude, of equal ones the lower index.

    Exact zeros are never kept.  The last chunk is of what is left, and its k is of that.  Sarfi et al. (SparseLoCo),
    arXiv:2508.15706, with chunks of 64 x 64.
    """

    density: float
    chunk: int

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        within("density", self.density, above=0, most=1, what="the fraction kept")
        whole("chunk", self.chunk, 1, 1 << 20, "the entries of a chunk")

    def encode(self, value: LazySum, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` where an entry of the sum is NaN or infinite."""
        rows = max(1, value.block_size // self.chunk)
        indices, values = [], []
        for start, block in value.blocks(rows * self.chunk):
            whole_chunks = block.size // self.chunk * self.chunk
            for begin, end in ((0, whole_chunks), (whole_chunks, block.size)):
                if begin < end:
                    part = block[begin:end].reshape(-1, min(self.chunk, end - begin))
                    found = _row_top_k(part, max(1, math.ceil(self.density * part.shape[1])))
                    indices.append(found + (start + begin))
                    values.append(block[begin:end][found])
        return Sparse(value.n, np.concatenate(indices), np.concatenate(values))

    def decode(self, value: Sparse, /) -> LazySum:
        """Return the kept entries in place and zeros elsewhere."""
        return LazySum(value.dense())


def _row_top_k(rows: Vector, k: int) -> Indices:
    """Return where, in `rows` (m, c) read as one vector, the k entries of largest magnitude of each row stand, ascending.

    The k-th largest of the maxima of a row's groups is a bound that at least k of its entries reach, so only what reaches
    it is looked at closely.
    """
    magnitude = np.abs(rows)
    bound = _bounds(magnitude, k)
    reached = np.flatnonzero((magnitude >= bound[:, None]) & (magnitude > 0))
    row = reached // rows.shape[1]
    counts = np.bincount(row, minlength=rows.shape[0])
    if (counts <= k).all():
        return reached
    # One line for each row, filled up with what is never chosen.
    table = np.full((rows.shape[0], int(counts.max())), -1, np.float32)
    column = np.arange(reached.size) - np.repeat(np.cumsum(counts) - counts, counts)
    table[row, column] = magnitude.ravel()[reached]
    least = np.partition(table, table.shape[1] - k, axis=1)[:, table.shape[1] - k, None] if table.shape[1] > k else -1
    keep = table > least
    ties = (table == least) & (table >= 0)
    room = k - keep.sum(axis=1)
    keep |= ties & (np.cumsum(ties, axis=1) <= room[:, None])
    chosen: Indices = reached[keep[row, column]]
    return chosen


def _bounds(magnitude: Vector, k: int) -> NDArray[np.float32]:
    """Return for each row a magnitude that at least k of its entries reach, 0 where none is easily found."""
    rows, width = magnitude.shape
    groups = 1 << max(0, (2 * k - 1).bit_length())
    if groups * 2 > width or width % groups:
        return np.zeros(rows, np.float32)
    maxima = magnitude.reshape(rows, width // groups, groups).max(axis=1)
    return np.partition(maxima, groups - k, axis=1)[:, groups - k]
