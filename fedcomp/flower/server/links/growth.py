"""Whether changes grow because the nodes ask for what is unpublished: then errors feed on themselves."""

from dataclasses import dataclass

from fedcomp.core import check_int, check_range
from fedcomp.flower.server.links.asked_for import AskedFor

FIRST_ROUNDS, FEWEST = 4, 8
"""The first rounds, with which later ones are compared, and the rounds in which nothing is told yet."""
GROWN, MOST = 100.0, 0.25
"""Errors feed on themselves if a change has this many times the largest squared norm of the first ones, and the last rounds
have asked for more than this share of what is unpublished.

Changes of healthy networks may grow that much too, in the studies up to 1,200 times in 100 rounds.  But then they asked for
next to nothing that was unpublished; on the plateau with which the training of an LSTM begins, for 0.15.
"""
KEPT = 0.8
"""The weight of the earlier `Growth.share` when that of a round is averaged."""
NEGLIGIBLE = 1e-6
"""What has less than this share of the squared norm of a change is a rounding error, and tells nothing."""


@dataclass(slots=True)
class Growth:
    """How much longer changes become, and how much of what is unpublished they ask for.

    Nodes with dual variables, as in ADMM, ask for what is missing in their model with growing force: once it is published, it
    is far too much, and they ask for as much in the other direction.

    Attributes:
        rounds: The number of rounds before which something was unpublished.
        first: The largest squared norm of a change in the first of them.
        share: The share of what was unpublished for which a round has asked, on average over the last ones.
        is_found: Whether changes have grown because of that: then it stays so.
    """

    rounds: int = 0
    first: float = 0.0
    share: float = 0.0
    is_found: bool = False

    def add(self, asked: AskedFor) -> None:
        """Count a round that has asked for this."""
        if asked.unpublished_norm <= NEGLIGIBLE * asked.norm:
            return
        self.rounds += 1
        if self.rounds <= FIRST_ROUNDS:
            self.first = max(self.first, asked.norm)
        self.share = KEPT * self.share + (1 - KEPT) * asked.unpublished / asked.unpublished_norm
        self.is_found |= self.rounds >= FEWEST and asked.norm > GROWN * self.first and self.share > MOST

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_int("rounds", self.rounds, 0, 2**63 - 1)
        check_range("first", self.first, least=0)
        check_range("share", self.share)
        if not isinstance(self.is_found, bool):
            raise TypeError(f"is_found is {self.is_found!r}; it is True or False")
