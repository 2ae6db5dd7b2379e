"""What the automatic choice measures in each round, and remembers between rounds and in checkpoints."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import check_int, check_range
from fedcomp.errors import CorruptError
from fedcomp.flower.server.links.demand import Demand
from fedcomp.flower.server.links.growth import Growth
from fedcomp.flower.server.links.lateness import Lateness
from fedcomp.flower.server.links.noise_budget import NoiseBudget
from fedcomp.flower.server.links.repetition import Repetition
from fedcomp.flower.server.links.self_correction import SelfCorrection
from fedcomp.methods import parse

KEPT_GAIN, MAX_GAIN = 0.7, 4.0
"""The weight of the earlier gain when that of a round is measured, and the largest gain that is relied on."""
LARGEST, FEWEST = 0.1, 5
"""This share of the updates, the largest ones, counts as much as the next one, so that a few nodes cannot decide.  Of fewer
updates than the second number, nothing can be told but the median."""
UNEQUAL, KEPT_INEQUALITY, MAX_INEQUALITY = 4.0, 0.9, 100.0
"""The inequality of updates above which their mean counts, and not their median; the weight of the earlier inequality when that
of a round is measured, and the largest that counts.

With few samples in a step, most updates can be small and a few large.  Their median is then far below their mean, and so is the
noise that would follow from it.
"""
ROUNDS_OF_LARGEST, LAST_OF_LARGEST = 5, 10
"""How much the largest entries stand out is measured in so many of the first rounds: in later ones, noise hides it."""
LATE_AFTER_PAUSE = 0.3
"""The lateness of a model in whose run the nodes asked again and again for what was unpublished, so that it cannot be measured:
just enough to count as late."""
KEPT_LONGEST = 0.9
"""The weight of the earlier squared norm of the longest update when those of a round are shorter."""
NESTED = ("budget", "correction", "demand", "growth", "lateness_soon", "lateness", "repetition")
"""The attributes of `Measurements` that have attributes of their own."""


@dataclass(slots=True)
class Measurements:
    """What the choice remembers between rounds, as it is saved in checkpoints.

    Attributes:
        uplink: The text of the last chosen compressor; empty at first.
        downlink: The text of the last chosen compressor; empty at first.
        evenness: How evenly the updates are weighted: their effective number over their number, 1 for equal weights.
        reached: The largest number of nodes that got a message between two versions.
        share: The factor of the downlink's density under `balanced()`; 0 at first.
        fetched: The bytes that returning nodes fetched in the last rounds (`ReturningTraffic`).
        sent: The bytes that they sent.
        changed: The largest number of entries in the tensors that the updates of a round change; 0 before the first round.
        gain: How much less error the updates have than Gaussian ones at the same bits (`RoundFacts.gain`), in the last rounds.
        inequality: The winsorized mean of the updates' squared norms over their median, in the last rounds.
        largest: The share of a change's squared norm in its largest hundredth of entries, in the first rounds; 0 at first.
        largest_rounds: The number of rounds of which `largest` is the mean.
        longest: The squared norm of the longest update that `Clipping` would leave as it is, before compression, but for the
            largest tenth; 0 at first.
        budget: The noise in the model, and how far it has moved by learning.
        correction: How fast training corrects an error of the model.
        demand: How fast the nodes ask for what is unpublished.
        growth: Whether changes grow because of that.
        lateness_soon: Whether the nodes ask for what is unpublished, in the second eighth of the rounds.
        lateness: Whether the nodes ask for what is unpublished, in the second quarter of the rounds.
        repetition: How often they ask again for what is unpublished, in the last rounds.
    """

    uplink: str = ""
    downlink: str = ""
    evenness: float = 1.0
    reached: int = 0
    share: float = 0.0
    fetched: float = 0.0
    sent: float = 0.0
    changed: int = 0
    gain: float = 1.0
    inequality: float = 1.0
    largest: float = 0.0
    largest_rounds: int = 0
    longest: float = 0.0
    budget: NoiseBudget = field(default_factory=NoiseBudget)
    correction: SelfCorrection = field(default_factory=SelfCorrection)
    demand: Demand = field(default_factory=Demand)
    growth: Growth = field(default_factory=Growth)
    lateness_soon: Lateness = field(default_factory=Lateness)
    lateness: Lateness = field(default_factory=Lateness)
    repetition: Repetition = field(default_factory=Repetition)

    def add_norms(self, norms: NDArray[np.float64], bound: float) -> None:
        """Count the squared norms of a round's updates; `bound` is the largest that clipping leaves as it is, 0 for none."""
        if median := float(np.median(norms)):
            ratio = min(winsorized_mean(norms) / median, MAX_INEQUALITY)
            self.inequality = KEPT_INEQUALITY * self.inequality + (1 - KEPT_INEQUALITY) * ratio
        if bound and norms.any():
            within = norms[norms <= bound]  # longer ones are cut in plain Flower too
            longest = float(winsorized(within)[-1]) if within.size else bound
            self.longest = max(longest, KEPT_LONGEST * self.longest)

    def add_gain(self, gain: float) -> None:
        """Count the gain of a round's updates."""
        self.gain = min(max(KEPT_GAIN * self.gain + (1 - KEPT_GAIN) * gain, 1 / MAX_GAIN), MAX_GAIN)

    def needs_largest(self, server_round: int) -> bool:
        """Return whether the largest entries of this round's change are to be measured."""
        return self.largest_rounds < ROUNDS_OF_LARGEST and server_round <= LAST_OF_LARGEST

    def add_largest(self, share: float) -> None:
        """Count the share of a round's change in its largest entries; 0 tells nothing."""
        if share:
            self.largest_rounds += 1
            self.largest += (share - self.largest) / self.largest_rounds

    @property
    def known_largest(self) -> float:
        """The share in the largest entries; 0 until enough rounds are measured."""
        return self.largest if self.largest_rounds == ROUNDS_OF_LARGEST else 0.0

    @property
    def late(self) -> float:
        """How late the published model is (`Lateness.share`)."""
        return self.lateness.share or (LATE_AFTER_PAUSE if self.repetition.pause else 0.0)

    def of_a_node(self, numbers: NDArray[np.float64]) -> float:
        """Return what one node adds, from that of each: the median, or the winsorized mean if updates are very unequal."""
        return float(winsorized_mean(numbers) if self.inequality > UNEQUAL else np.median(numbers))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as plain values."""
        return _shallow(self) | {name: _shallow(getattr(self, name)) for name in NESTED}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return those of which `state` returned this; what it lacks is as at first.

        Raises `CorruptError` for values that `state` does not return.
        """
        try:
            measured = cls(
                **{
                    name: type(fresh)(**state.get(name, {})) if name in NESTED else type(fresh)(state.get(name, fresh))
                    for name, fresh in _shallow(cls()).items()
                }
            )
            measured.check()
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptError(f"the automatic choice in the checkpoint is damaged: {error}") from error
        return measured

    def check(self) -> None:
        """Raise `ValueError` or `TypeError` for values that measuring does not leave."""
        for name in NESTED:
            getattr(self, name).check()
        for text in filter(None, (self.uplink, self.downlink)):
            parse(text)
        check_range("evenness", self.evenness, above=0, most=1 + 1e-9)
        check_range("share", self.share, least=0, most=1)
        check_range("fetched", self.fetched, least=0)
        check_range("sent", self.sent, least=0)
        check_int("reached", self.reached, 0, 2**63 - 1)
        check_int("changed", self.changed, 0, 2**63 - 1)
        check_range("inequality", self.inequality, least=0, most=MAX_INEQUALITY)
        check_range("longest", self.longest, least=0)
        check_range("largest", self.largest, least=0, most=1)
        check_int("largest_rounds", self.largest_rounds, 0, ROUNDS_OF_LARGEST)
        check_range("gain", self.gain, least=1 / MAX_GAIN, most=MAX_GAIN)


def _shallow(
    values: Measurements | NoiseBudget | SelfCorrection | Demand | Growth | Lateness | Repetition,
) -> dict[str, Any]:
    """Return the attributes of `values` by name: `asdict` would copy each number of a sketch."""
    return {each.name: getattr(values, each.name) for each in fields(values)}


def winsorized(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the numbers in order, the largest tenth as large as the next one; of few numbers all as they are."""
    numbers = np.sort(numbers)
    if len(numbers) >= FEWEST:
        largest = math.ceil(LARGEST * len(numbers))
        numbers[-largest:] = numbers[-largest - 1]
    return numbers


def winsorized_mean(numbers: NDArray[np.float64]) -> float:
    """Return the winsorized mean; of few numbers the median."""
    return float(np.median(numbers) if len(numbers) < FEWEST else np.mean(winsorized(numbers)))
