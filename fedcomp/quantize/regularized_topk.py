"""Top-k that leaves out entries that the other senders are likely to cancel."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate, PreviousRound, check_choice, check_range
from fedcomp.quantize.topk import check_density, largest, num_kept, select
from fedcomp.quantized import Sparse

EPSILON = 1e-10  # keeps the distortion finite; the authors' value


@dataclass(frozen=True, slots=True)
class RegularizedTopK:
    """Keep the k = max(1, ceil(density n)) entries of largest score |a_j| tanh(|1 + D_j| / mu), of equal ones the lower index.

    D_j is the posterior distortion of an entry sent last time: the sum that the others sent of it, divided by the entry as
    it was "sent" or as it is "asked" for now (`denominator`); it is near -1 if they cancelled it.  An entry not sent last time
    has the score |a_j|; without a `PreviousRound` as the hint, this is top-k.
    Bereyhi, Liang, Boudreau, Afana, arXiv:2501.05633, Algorithm 1 (the unselected ones with Q to infinity).  The paper divides
    by "asked", its authors' programs by "sent"; only the latter reaches the optimum in `benchmarks/regtopk.py`.
    """

    density: float
    mu: float
    denominator: str = "sent"

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
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
