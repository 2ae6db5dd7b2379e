"""How fast the nodes ask for what is unpublished; if so fast that it is missing in the model, versions leave nothing out."""

from dataclasses import dataclass

from fedcomp.core import check_int, check_range
from fedcomp.flower.server.links.asked_for import AskedFor
from fedcomp.flower.server.links.chance import is_surely_positive

QUARTERS, FEWEST = 4, 3
"""The parts of a run of which each is measured by itself, and the rounds of a part in which something can be told."""
MOST_AT_FIRST, MOST = 15.0, 4.0
"""How many times the nodes may ask for what is unpublished, if all rounds ask at the rate of the first quarter, or a later one.

At first, all that a model learns is unpublished for some rounds.
"""
SMALL = 0.12
"""What has less than this share of the squared norm of the published change hardly makes a model late."""


@dataclass(slots=True)
class Demand:
    """The share of the unpublished change that a round asks for, in a quarter of the rounds.

    It is next to nothing where the unpublished change is noise.  Nodes that fit a model to the end ask for nearly half of it in
    each round: what is unpublished is missing in their model, and they make it up at once.

    Attributes:
        quarter: The quarter of the rounds that is measured, from 0.
        rounds: The number of its rounds so far before which something was unpublished.
        asked: The sum of the scalar products of a round's change with what was unpublished before it.
        unpublished: The sum of the squared norms of what was unpublished.
        shares: The sum over the rounds of the former over the latter.
        share_squares: The sum of the squares of these shares.
        ratios: The sum of what was unpublished over what was published, as squared norms by shape (`Sketcher.ratio`).
        is_high: Whether the rate was too high in a quarter that is over: then it stays so.
    """

    quarter: int = 0
    rounds: int = 0
    asked: float = 0.0
    unpublished: float = 0.0
    shares: float = 0.0
    share_squares: float = 0.0
    ratios: float = 0.0
    is_high: bool = False

    def begin(self, server_round: int, num_rounds: int, *, leaves_nothing_out: bool = False) -> None:
        """Judge the quarter before, for a run of `num_rounds` rounds, if a new one begins with this round.

        If versions now leave nothing out, because no entries stand out, what the first rounds have asked for is not judged.
        """
        quarter = min(QUARTERS, QUARTERS * (server_round - 1) // num_rounds)
        if quarter == self.quarter:
            return
        most = MOST if self.quarter else MOST_AT_FIRST
        # The shares tell what is chance: where errors grow, the last rounds alone make up the other sums.
        known = (
            not leaves_nothing_out
            and self.rounds >= FEWEST
            and is_surely_positive(self.rounds, self.shares, self.share_squares)
        )
        is_large = self.ratios >= SMALL * self.rounds
        self.is_high |= known and is_large and self.asked * num_rounds > most * self.unpublished
        self.quarter, self.rounds = quarter, 0
        self.asked = self.unpublished = self.shares = self.share_squares = self.ratios = 0.0

    def add(self, asked: AskedFor, ratio: float) -> None:
        """Count a round that has asked for this, with the `ratio` of what was unpublished to what was published."""
        if not asked.unpublished_norm:
            return
        share = asked.unpublished / asked.unpublished_norm
        self.rounds += 1
        self.asked += asked.unpublished
        self.unpublished += asked.unpublished_norm
        self.shares += share
        self.share_squares += share * share
        self.ratios += ratio

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        check_int("quarter", self.quarter, 0, QUARTERS)
        check_int("rounds", self.rounds, 0, 2**63 - 1)
        for name in ("asked", "shares"):
            check_range(name, getattr(self, name))
        for name in ("unpublished", "share_squares", "ratios"):
            check_range(name, getattr(self, name), least=0)
        if not isinstance(self.is_high, bool):
            raise TypeError(f"is_high is {self.is_high!r}; it is True or False")
