"""Gaps between kept entries: g >= 1 from one kept index to the next, the first one's from index -1; runs are r = g - 1."""

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError
from fedcomp.quantized import Indices

CHUNK_GAPS = 512
"""Gaps that share a Rice parameter."""

Runs = NDArray[np.uint32]
"""r = gap - 1 of each kept entry, uint32 (chunks, CHUNK_GAPS), the last chunk filled up with zeros."""


def runs_of(indices: Indices, n: int) -> Runs:
    """Return the runs of the ascending `indices`, at least one, of a vector of `n` entries."""
    if n > MAX_ENTRIES:
        raise ValueError(f"a vector of {n} entries; at most {MAX_ENTRIES} can be encoded")
    k = indices.size
    runs = np.zeros(-(-k // CHUNK_GAPS) * CHUNK_GAPS, np.uint32)
    runs[0] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=runs[1:k], casting="unsafe")
    runs[1:k] -= 1
    return runs.reshape(-1, CHUNK_GAPS)


def indices_of(gaps: NDArray[np.int64], n: int) -> Indices:
    """Return the indices with these `gaps`, in the memory of `gaps`; refuse those outside a vector of `n` entries."""
    indices = np.cumsum(gaps, out=gaps)
    indices -= 1
    if indices[-1] >= n:
        raise CorruptError(f"an index of {indices[-1]} in a vector of {n} entries")
    return indices
