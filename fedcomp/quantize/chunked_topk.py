"""The k largest entries of every chunk of the vector: positions cost few bits, and every chunk sends some."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import CompensatedUpdate, Vector, check_int
from fedcomp.quantize.buckets import bucket_rows
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
        indices: list[Indices] = []
        values: list[Vector] = []
        for entries, _, rows in bucket_rows(value, self.chunk):
            kept = np.flatnonzero(_largest_in_rows(rows, num_kept(self.density, rows.shape[1])))
            indices.append(kept + entries.start)
            values.append(rows.ravel()[kept])
        return Sparse(value.n, np.concatenate(indices), np.concatenate(values))


def _largest_in_rows(rows: Vector, k: int) -> NDArray[np.bool_]:
    """Return which entries are among the k largest of their row, zeros never."""
    magnitude = np.abs(rows)
    least = np.partition(magnitude, -k, axis=1)[:, -k, None]
    keep: NDArray[np.bool_] = np.greater_equal(magnitude, least)
    keep &= magnitude > 0
    if np.count_nonzero(keep) > k * len(rows):  # ties
        larger = magnitude > least
        ties = keep & ~larger
        keep = larger | ties & (np.cumsum(ties, axis=1) <= k - larger.sum(axis=1, keepdims=True))
    return keep
