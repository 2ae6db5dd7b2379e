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
    """Keep the k = max(1, ceil(density chunk)) entries of largest magnitude of each `chunk`; ties go to the lower index.

    Exact zeros are never kept.  The last chunk may be shorter, and its k follows from its length.  Sarfi et al. (SparseLoCo),
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
    """Return which entries are among the k largest of their row; ties go to the first, and zeros never count."""
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
    """`selection` with a warm-up: the first `warmup` rounds are s equal steps, and step j has density d^((j + 1) / (s + 1)).

    s is `steps`, or `warmup` if `steps` is None: then every round of the warm-up has its own density.  From round `warmup` on,
    and if the round is unknown, the density is d, the density of `selection`.

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
        """Return the density of round `round_number`, counted from 0."""
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
    """Keep the k = max(1, ceil(density n)) entries of largest score |a_j| tanh(|1 + D_j| / mu); ties go to the lower index.

    D_j is the posterior distortion of an entry that was sent last time: the sum that the other senders sent for it, divided
    by the entry.  The divisor (`denominator`) is the entry as it was "sent", or as it is "asked" for now.  D_j is near -1 if
    the others cancelled the entry.  Entries that were not sent have the score |a_j|.  Without a `PreviousRound` as the hint,
    this is top-k.
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
        with np.errstate(over="ignore"):  # a large quotient has the factor 1
            score[hinted] *= np.tanh(np.abs(1 + distortion) / self.mu)
        keep = largest(score, k)
        return Sparse(value.n, indices[keep], values[keep])

    def error_bound(self, n: int) -> None:
        """Return None, for no bound: the entries of highest score may be small."""


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
        """Return the variance n / k - 1, or the factor 1 - k / n if the entries are sent unchanged."""
        return Unbiased(1 / self.density - 1) if self.unbiased else Contracting(1 - self.density)

    def contracting(self) -> "SeededSubset":
        """Return the quantizer that sends the entries unchanged."""
        return replace(self, unbiased=False)


def read_entries(value: CompensatedUpdate, indices: Indices) -> Vector:
    """Return the entries at `indices`, ascending.  Reads all entries of `value`, which checks that they are finite."""
    values = np.empty(indices.size, np.float32)
    for start, block in value.blocks():
        first, last = np.searchsorted(indices, (start, start + block.size))
        values[first:last] = block[indices[first:last] - start]
    return values
