"""Top-k whose density falls over the first rounds."""

from dataclasses import dataclass

from fedcomp.core import CompensatedUpdate, check_int, check_range
from fedcomp.quantize.topk import num_kept, select
from fedcomp.quantized import Sparse


@dataclass(frozen=True, slots=True)
class ScheduledTopK:
    """Top-k of density ``density**((t + 1) / (warmup + 1))`` in round t < warmup, and of `density` from then on.

    Lin et al. (DGC), ICLR 2018, section 3.3: with density = 0.001 and warmup = 4 the exponential 25 %, 6.3 %, 1.6 %, 0.4 %,
    0.1 %, in rounds where the paper has epochs.  Where no round is known, the warm-up is over.
    """

    density: float
    warmup: int

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        check_range("density", self.density, above=0, most=1, what="the fraction kept")
        check_int("warmup", self.warmup, 0, 10**6, "a number of rounds")

    def density_in(self, number: int | None) -> float:
        """Return the density of the round of that `number`, the first one being 0."""
        if number is None or number >= self.warmup:
            return self.density
        return float(self.density ** ((number + 1) / (self.warmup + 1)))

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        """Return the kept entries.  Raises `ValueError` where an entry of the sum is NaN or infinite."""
        return Sparse(value.n, *select(value, num_kept(self.density_in(value.context.round), value.n)))
