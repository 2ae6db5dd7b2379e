"""Whether a downlink that the user has named leaves out so much of what the nodes ask for that training goes wrong."""

from dataclasses import dataclass, field

from fedcomp.flower.server.links.asked_for import AskedFor
from fedcomp.flower.server.links.demand import SURE, Demand
from fedcomp.flower.server.links.repetition import Repetition

FAR_TOO_OFTEN = 5.0
"""The largest `Repetition.times` that is surely harmless."""
FIRST_ROUNDS, GROWTH, MOST = 4, 1000.0, 0.1
"""Errors feed on themselves if a change has this many times the squared norm of all changes of the first rounds, and rounds ask
for more than this share of what is unpublished.  In the 120 first rounds of a CNN, a change had up to 300 times as much, and
they asked for up to 0.06.
"""


@dataclass(slots=True)
class NamedDownlink:
    """What the nodes ask for of what a named downlink leaves out.

    Attributes:
        repetition: How often they ask for the same.
        demand: How fast they ask for it, in the whole run.
        first: The largest squared norm of a change in the first rounds.
        is_harmful: Whether the downlink has been found to do harm: then it stays so.
    """

    repetition: Repetition = field(default_factory=Repetition)
    demand: Demand = field(default_factory=Demand)
    first: float = 0.0
    is_harmful: bool = False

    def add(self, asked: AskedFor) -> bool:
        """Count a round; return whether it is the first one that shows that the downlink does harm."""
        if self.is_harmful:
            return False
        self.repetition.measure(asked.times)
        self.demand.add(asked, ratio=1.0)
        if self.demand.rounds <= FIRST_ROUNDS:
            self.first = max(self.first, asked.norm)
        grows = self.demand.rounds >= SURE and asked.norm > GROWTH * self.first and self.demand.asks_for(MOST)
        self.is_harmful = grows or self.repetition.times > FAR_TOO_OFTEN
        return self.is_harmful
