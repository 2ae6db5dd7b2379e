"""Whether the published model is late: whether the nodes go on asking for what is not published yet."""

from dataclasses import dataclass

from fedcomp.core import check_int, check_range
from fedcomp.flower.server.links.chance import is_surely_positive

FEWEST = 10
"""With fewer rounds, nothing can be told."""


@dataclass(slots=True)
class Lateness:
    """What the changes of some rounds have in common with the unpublished change, and with all changes since an origin.

    If the unpublished change is noise, the changes of later rounds have nothing in common with it, or undo it.  If it is
    something that the nodes have learned, they learn it again in each round, because their model lacks it.

    Attributes:
        rounds: The number of rounds.
        unpublished: The sum over the rounds of the scalar product of a round's change with what was unpublished before it.
        unpublished_squares: The sum of the squares of these scalar products.
        whole: The sum of the scalar products with all that was changed since the origin, published or not.
        whole_squares: The sum of the squares of these scalar products.
    """

    rounds: int = 0
    unpublished: float = 0.0
    unpublished_squares: float = 0.0
    whole: float = 0.0
    whole_squares: float = 0.0

    def add(self, unpublished: float, whole: float) -> None:
        """Count a round with these two scalar products."""
        self.rounds += 1
        self.unpublished += unpublished
        self.unpublished_squares += unpublished * unpublished
        self.whole += whole
        self.whole_squares += whole * whole

    @property
    def share(self) -> float:
        """The share of the unpublished change in what the rounds have in common with all changes; 0 if it may be chance."""
        both = ((self.unpublished, self.unpublished_squares), (self.whole, self.whole_squares))
        if self.rounds < FEWEST or not all(is_surely_positive(self.rounds, *sums) for sums in both):
            return 0.0
        return self.unpublished / self.whole

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_int("rounds", self.rounds, 0, 2**63 - 1)
        for name in ("unpublished", "whole"):
            check_range(name, getattr(self, name))
            check_range(f"{name}_squares", getattr(self, f"{name}_squares"), least=0)
