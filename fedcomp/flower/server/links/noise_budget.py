"""How much noise compression may add to the model, measured against how far it has moved by learning, and against sampling.

Independent errors of messages add up in the model like a random walk, nearly orthogonal to what it learns.  So the squared
distance from the first model is the squared displacement by learning plus the noise.  The server knows the distance from its
model, and the noise from the updates, which say how exact they are, and from its versions; from these alone if a strategy makes
another step than the mean of the updates.  `docs/explanation/automatic-choice.md` derives the rule.
"""

import math
from dataclasses import dataclass, field

from fedcomp.core import check_int, check_range
from fedcomp.flower.server.links.sketch import MAX_RATIO, Sketch, check_sketch
from fedcomp.methods import VERY_MANY_ROUNDS

MIN_NOISE, MAX_NOISE = 0.02, 3.0
"""The least and the largest noise of a round, over `NoiseBudget.norm`.

With more than the largest, training itself diverged in trials, however far the model had moved.
"""
RESERVE = 0.1
"""Noise is spread over the rounds to come and over this share of all rounds, because the last noise cannot be corrected."""
KEPT_NORM, KEPT_GROWTH = 0.7, 0.9
"""The weight of the earlier norms, and of the earlier growth, when those of a round are measured."""
TINY = 1e-30
"""The least displacement that something is divided by."""


@dataclass(slots=True)
class NoiseBudget:
    """The noise in the model, and how far it has moved by learning, as checkpoints keep them.

    Attributes:
        first: The sketch of the model from which distances count; empty before the first round.
        last: The sketch of the change of the last round; empty before the first round.
        noise: The sum of the squared errors that the rounds have added.
        displacement: The squared distance from the first model, without the noise.
        growth: By how much `displacement` grows in a round, in the last rounds.
        norm: The squared norm of an update, in the last rounds; 0 if it is unknown.  That of a round's change, if it is larger
            and the strategy makes another step than the mean.
        step: The squared norm of the change of a round, in the last rounds.
        sampling: The squared error of a round's mean because other nodes or batches could have been drawn, in the last rounds;
            an estimate, which may be below 0.
        unpublished: The squared norm of the unpublished change over that of the published one, by shape (`Sketcher.ratio`).
        rounds: The number of measured rounds.
    """

    first: list[float] = field(default_factory=list[float])
    last: list[float] = field(default_factory=list[float])
    noise: float = 0.0
    displacement: float = 0.0
    growth: float = 0.0
    norm: float = 0.0
    step: float = 0.0
    sampling: float = 0.0
    unpublished: float = 0.0
    rounds: int = 0

    def add(
        self, here: Sketch, change: Sketch, *, noise: float, norm: float, averaged: float, unpublished: float = 0.0
    ) -> None:
        """Take in a round that ended with the model of the sketch `here`, all of its change included, and added `noise`.

        `change` is the sketch of what the strategy made of `averaged` updates; `norm` is as in `NoiseBudget`.  Of all
        changes so far, `unpublished` is the ratio of what is not published yet to what is.
        """
        # Changes of two rounds differ by twice the noise of one.  Independent updates have no more than the share `averaged`.
        differ = math.dist(change, self.last) ** 2 / 2 - noise if self.last else 0.0
        kept = KEPT_NORM if self.norm else 0.0
        self.norm = kept * self.norm + (1 - kept) * norm
        self.step = kept * self.step + (1 - kept) * float(change @ change)
        self.sampling = kept * self.sampling + (1 - kept) * min(differ, norm / averaged)
        self.last, self.unpublished = change.tolist(), unpublished
        self.noise += noise
        self.rounds += 1
        displacement = max(0.0, math.dist(here, self.first) ** 2 - self.noise)
        kept = min(KEPT_GROWTH, 1 - 1 / self.rounds)
        self.growth = kept * self.growth + (1 - kept) * (displacement - self.displacement)
        self.displacement = displacement

    def share(self, rounds_left: int, most: float, always: float = 0.0, power: float = 1.0) -> float:
        """Return the noise that each of `rounds_left` rounds may add, over `norm`; 0 if that is unknown.

        In the end, the noise is `most` times the displacement, which is expected to grow with a power of the rounds, as in the
        last rounds, but at most with `power`.  Noise of `always` times the sampling noise may be added in any case.

        In a run of more than `VERY_MANY_ROUNDS`, what the rounds before left is not made up for: late noise costs most, and it
        raises the displacement that would allow still more.  There, `MAX_NOISE` counts for the whole run: as much as in so many
        rounds.
        """
        if not self.norm:
            return 0.0
        exponent = min(max(0.0, self.growth) * self.rounds / max(self.displacement, TINY), power)
        last = self.displacement * math.pow(1 + rounds_left / self.rounds, exponent)
        left, total = most * last - self.noise, self.rounds + rounds_left
        share = left / (rounds_left + RESERVE * total) / self.norm
        if total > VERY_MANY_ROUNDS:
            even = most * last / ((1 + RESERVE) * total) / self.norm
            share = min(share, even, MAX_NOISE * VERY_MANY_ROUNDS / total)
        return min(max(share, always * self.sampling / self.norm, MIN_NOISE), MAX_NOISE)

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that `add` does not leave."""
        for numbers in (self.first, self.last):
            check_sketch(numbers)
        for name in ("noise", "displacement", "norm", "step"):
            check_range(name, getattr(self, name), least=0)
        check_range("unpublished", self.unpublished, least=0, most=MAX_RATIO)
        check_range("growth", self.growth)
        check_range("sampling", self.sampling)
        check_int("rounds", self.rounds, 1 if self.norm else 0, 2**63 - 1)
