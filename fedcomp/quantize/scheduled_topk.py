"""Top-k whose density falls over the first rounds."""

from dataclasses import dataclass, replace

from fedcomp.core import CompensatedUpdate, check_int
from fedcomp.quantize.tensor_topk import TensorTopK
from fedcomp.quantize.topk import TopK
from fedcomp.quantized import Sparse

MAX_ROUNDS = 10**6


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
        """Refuse settings out of range."""
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
        return replace(self.selection, density=self.density_in(value.context.round)).quantize(value)
