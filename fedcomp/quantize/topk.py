"""The k entries of largest magnitude, exactly, over the whole vector.

A sample gives a threshold that is deliberately loose.  One pass over the blocks collects the entries above the threshold, and
the k largest of these are the k largest of all.  Nothing of the vector's size is sorted, so this costs a few times a memcpy
(`benchmarks/codecs.py`).  If the sample misleads (ties, spikes, zeros), only time is lost, never exactness.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.backends import torch_backend
from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, Vector, ceil_fraction, check_range
from fedcomp.quantize.error_bound import Contracting, ErrorBound
from fedcomp.quantized import Indices, Sparse

ZERO = np.float32(0)
MAGNITUDE = np.int32(0x7FFFFFFF)
"""All bits of a float32 except its sign; as integers they are ordered as magnitudes are."""
RUN = 16  # neighbours taken at each sampled place: one cache line
MIN_SAMPLED = 1 << 13  # of fewer entries all are collected, which is faster than a search for a bound


def check_density(density: object) -> None:
    """Refuse a density outside (0, 1]."""
    check_range("density", density, above=0, most=1, what="the fraction kept")


def num_kept(density: float, n: int) -> int:
    """Return k = max(1, ceil(density n)), the entries kept of `n`."""
    return max(1, ceil_fraction(density, n))


@dataclass(frozen=True, slots=True)
class TopK:
    """Keep the k = max(1, ceil(density n)) entries of largest magnitude; ties go to the lower index.

    Exact zeros are never kept: of a vector with fewer than k nonzero entries, all of these are kept.
    Aji and Heafield, EMNLP 2017; the rule for k is from Sattler et al., IEEE TNNLS 31(9), 2020.
    """

    density: float

    def __post_init__(self) -> None:
        check_density(self.density)

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        return Sparse(value.n, *select(value, num_kept(self.density, value.n)))

    def sent_whole(self, value: CompensatedUpdate, /) -> list[slice]:
        """Return the parts of the vector of which all entries are sent: the whole vector, or nothing."""
        return [slice(0, value.n)] if num_kept(self.density, value.n) == value.n else []

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - density: if all entries are equal, this share of the vector is left out."""
        return Contracting(1 - self.density)


def select(value: CompensatedUpdate, k: int) -> tuple[Indices, Vector]:
    """Return the result of `top_k`, computed on the device of the parts."""
    return top_k(value, k) if value.on_host else torch_backend.top_k(value, k)


def largest(scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return which of the `scores`, (m,), are the k largest: all if m <= k; ties go to the lower index."""
    if scores.size <= k:
        return np.ones(scores.size, np.bool_)
    least = np.partition(scores, scores.size - k)[scores.size - k]
    keep: NDArray[np.bool_] = np.greater(scores, least)
    ties = np.flatnonzero(scores == least)
    keep[ties[: k - int(np.count_nonzero(keep))]] = True
    return keep


def top_k(value: CompensatedUpdate, k: int) -> tuple[Indices, Vector]:
    """Return indices (ascending) and entries of the min(k, non-zeros) entries of largest magnitude."""
    bound = sampled_bound(value, k)
    indices, values = _collect(value, k, bound)
    if indices.size < k and bound > 0:
        indices, values = _collect(value, k, ZERO)
    return indices, values


def sampled_bound(value: CompensatedUpdate, k: int) -> np.float32:
    """Return a magnitude that somewhat more than k entries are likely to exceed."""
    n = value.n
    if n < MIN_SAMPLED:
        return ZERO
    # Every 64th run, or fewer if the vector is long and k is large; the rank below allows for the sample's error.
    step = 64 if n < 64 * BLOCK_ENTRIES else min(max(k // 64, 64), 256)
    sample = value.sample(step // 2, step, RUN)
    wanted = k / n * sample.size
    rank = math.ceil(wanted + 3 * math.sqrt(wanted)) + 1
    if rank >= sample.size:
        return ZERO
    np.abs(sample, out=sample)
    least = np.partition(sample, sample.size - rank)[sample.size - rank]
    return np.nextafter(least, ZERO) if 0 < least < np.inf else ZERO


def _collect(value: CompensatedUpdate, k: int, bound: np.float32) -> tuple[Indices, Vector]:
    """Return the k largest of the entries whose magnitude exceeds `bound`, or all of them if there are fewer."""
    room = min(value.n, k + max(k // 5, 4096, min(k, value.n // 128)))
    indices, values = np.empty(room, np.uint32), np.empty(room, np.float32)
    passed, negative = np.empty(value.block_size, np.bool_), np.empty(value.block_size, np.bool_)
    held = 0
    for start, block in value.blocks():
        # Two comparisons and no magnitudes.  A zero passes no bound, even on a processor that treats denormals as zeros
        # (torch.set_flush_denormal), so the least bound is zero and not a denormal.
        above = np.greater(block, bound, out=passed[: block.size])
        above |= np.less(block, -bound, out=negative[: block.size])
        hits = above.nonzero()[0]
        while hits.size:
            now = hits[: room - held]
            part = slice(held, held + now.size)
            np.add(now, start, out=indices[part], casting="unsafe")
            block.take(now, out=values[part], mode="clip")
            held, hits = part.stop, hits[now.size :]
            if held == room > k:
                held = _largest(indices, values, held, k)
                # k entries are found: from here on only a larger entry counts, since ties go to the lower index.
                bound = np.abs(values[:held]).min()
                hits = hits[np.abs(block[hits]) > bound]
    held = _largest(indices, values, held, k)
    return indices[:held].astype(np.int64), values[:held]


def _largest(indices: NDArray[np.uint32], values: Vector, held: int, k: int) -> int:
    """Move the k largest of the first `held` entries to the front, in order; return their number."""
    if held <= k:
        return held
    keep = largest(values[:held].view(np.int32) & MAGNITUDE, k)
    indices[:k] = indices[:held][keep]
    values[:k] = values[:held][keep]
    return k
