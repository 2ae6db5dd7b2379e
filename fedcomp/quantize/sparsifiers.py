"""Sparsifiers in addition to top-k: top-k of chunks, on a schedule and regularized, and random-k."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate, PreviousRound, Vector, check_choice, check_int, check_range
from fedcomp.quantize.buckets import bucket_rows
from fedcomp.quantize.error_bound import Contracting, ErrorBound, Unbiased
from fedcomp.quantize.per_tensor import TensorTopK
from fedcomp.quantize.topk import TopK, check_density, largest, num_kept, select
from fedcomp.quantized import NUM_SEEDS, Indices, Seeded, Sparse, seeded_indices

MAX_ROUNDS = 10**6
EPSILON = 1e-10  # keeps the distortion finite; the authors' value


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

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound 1 - density."""
        return Contracting(1 - self.density)


def _largest_in_rows(rows: Vector, k: int) -> NDArray[np.bool_]:
    """Return which entries are among the k largest of their row, of equal ones the first; zeros never are."""
    magnitude = np.abs(rows)
    # As integers, which are ordered as magnitudes are, they are partitioned faster.
    least = np.partition(magnitude.view(np.int32), -k, axis=1)[:, -k, None].view(np.float32)
    keep: NDArray[np.bool_] = np.greater_equal(magnitude, least)
    if not least.all() or np.count_nonzero(keep) > k * len(rows):  # zeros, or ties
        larger = magnitude > least
        ties = keep & ~larger & (least > 0)
        keep = larger | ties & (np.cumsum(ties, axis=1) <= k - larger.sum(axis=1, keepdims=True))
    return keep


@dataclass(frozen=True, slots=True)
class ScheduledTopK:
    """`selection`, its density d raised to (j + 1) / (s + 1) in step j of s equal steps of the first `warmup` rounds.

    s is `steps`, or `warmup` where that is None: then every round of the warm-up has a density of its own.  From round
    `warmup` on, and where no round is known, the density is d.

    Lin et al. (DGC), ICLR 2018, section 3.3: with d = 0.001 and four steps, one an epoch, the densities are 25 %, 6.3 %,
    1.6 %, 0.4 % and then 0.1 %.
    """

    selection: TopK | TensorTopK
    warmup: int
    steps: int | None = None

    def __post_init__(self) -> None:
        check_int("warmup", self.warmup, 0, MAX_ROUNDS, "a number of rounds")
        if self.steps is not None:
            check_int(
                "warmup_steps", self.steps, 1, max(1, self.warmup), "the steps of the warm-up, at most its rounds"
            )

    def density_in(self, round_number: int | None) -> float:
        """Return the density of the round of that number, the first one being 0."""
        density = self.selection.density
        if round_number is None or round_number >= self.warmup:
            return density
        steps = self.warmup if self.steps is None else self.steps
        return float(density ** ((round_number * steps // self.warmup + 1) / (steps + 1)))

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        return self._in_round(value).quantize(value)

    def sent_whole(self, value: CompensatedUpdate, /) -> list[slice]:
        """Return the parts of the vector that are sent with all their entries in this round."""
        return self._in_round(value).sent_whole(value)

    def _in_round(self, value: CompensatedUpdate) -> TopK | TensorTopK:
        return replace(self.selection, density=self.density_in(value.context.round))

    def error_bound(self, n: int) -> ErrorBound:
        """Return the bound of the selection, whose density is the least one."""
        return self.selection.error_bound(n)


@dataclass(frozen=True, slots=True)
class RegularizedTopK:
    """Keep the k = max(1, ceil(density n)) entries of largest score |a_j| tanh(|1 + D_j| / mu), of equal ones the lower index.

    D_j is the posterior distortion of an entry sent last time: the sum that the others sent of it, divided by the entry as
    it was "sent" or as it is "asked" for now (`denominator`); it is near -1 if they cancelled it.  Other entries have the
    score |a_j|; without a `PreviousRound` as the hint, this is top-k.
    Bereyhi, Liang, Boudreau, Afana, arXiv:2501.05633, Algorithm 1 (the unselected ones with Q to infinity).  The paper divides
    by "asked", its authors' programs by "sent"; only the latter reaches the optimum in `benchmarks/regtopk.py`.
    """

    density: float
    mu: float
    denominator: str = "sent"

    def __post_init__(self) -> None:
        check_density(self.density)
        check_range("mu", self.mu, above=0)
        check_choice("denominator", self.denominator, ("sent", "asked"))

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` if an entry of the sum is NaN or infinite."""
        k, hint = num_kept(self.density, value.n), value.hint
        if not isinstance(hint, PreviousRound) or not hint.indices.size:
            return Sparse(value.n, *select(value, k))
        # No score exceeds its magnitude, so the k best are among the k + hinted entries of largest magnitude.
        indices, values = select(value, min(value.n, k + hint.indices.size))
        score = np.abs(values).astype(np.float64)
        place = np.searchsorted(hint.indices, indices)
        place[place == hint.indices.size] = 0
        hinted = hint.indices[place] == indices
        place = place[hinted]
        entry = (hint.own[place] if self.denominator == "sent" else values[hinted]).astype(np.float64)
        distortion = hint.others[place] / (entry + np.copysign(EPSILON, entry))
        score[hinted] *= np.tanh(np.abs(1 + distortion) / self.mu)
        keep = largest(score, k)
        return Sparse(value.n, indices[keep], values[keep])

    def error_bound(self, n: int) -> None:
        """Return no bound: the entries of highest score may be small ones."""


@dataclass(frozen=True, slots=True)
class SeededSubset:
    """Keep k = max(1, ceil(density n)) entries drawn from the context's seed; if `unbiased`, multiply them by n / k.

    Wangni, Wang, Liu, Zhang, NeurIPS 2018.
    """

    density: float
    unbiased: bool

    def __post_init__(self) -> None:
        check_density(self.density)

    def quantize(self, value: CompensatedUpdate, /) -> Seeded:
        """Return the drawn entries.  Raises `ValueError` if an entry of the sum, drawn or not, is NaN or infinite."""
        k, seed = num_kept(self.density, value.n), value.context.seed % NUM_SEEDS
        indices = seeded_indices(value.n, k, seed)
        values = read_entries(value, indices)
        if self.unbiased:
            values = np.clip(values.astype(np.float64) * (value.n / k), -MAX_FLOAT32, MAX_FLOAT32).astype(np.float32)
        return Seeded(value.n, seed, indices, values)

    def error_bound(self, n: int) -> ErrorBound:
        """Return the variance n / k - 1, or the factor 1 - k / n of entries that are sent as they are."""
        return Unbiased(1 / self.density - 1) if self.unbiased else Contracting(1 - self.density)

    def contracting(self) -> "SeededSubset":
        """Return the quantizer that sends the entries as they are."""
        return replace(self, unbiased=False)


def read_entries(value: CompensatedUpdate, indices: Indices) -> Vector:
    """Return the entries at `indices`, ascending.  Reads, and so checks, all entries of `value`."""
    values = np.empty(indices.size, np.float32)
    for start, block in value.blocks():
        first, last = np.searchsorted(indices, (start, start + block.size))
        values[first:last] = block[indices[first:last] - start]
    return values
