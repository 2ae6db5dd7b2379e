"""The automatic choice: for each round, the cheapest compressor that should cost no accuracy by the end of the run.

`docs/explanation/automatic-choice.md` derives the rule and says where the constants come from.  Sizes are in bits per
entry of the vector.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import check_range
from fedcomp.entropy import RotatedBits
from fedcomp.memory import NoMemory
from fedcomp.methods.quantization import dense
from fedcomp.methods.registry import Parts, register
from fedcomp.methods.rotation_low_rank import crosspolytope, eden
from fedcomp.methods.sparsification import stc, topk
from fedcomp.quantize import Eden
from fedcomp.quantized import MAX_BITS, mean_largest, mean_square, symbol_bits

__all__ = ["auto"]

DENSE_BITS = 32.0
EDEN_ERRORS = tuple(1 / mean_square(bits) - 1 for bits in range(1, MAX_BITS + 1))
"""The squared error of 1 to 4 bits as a share of the squared norm, about 0.571, 0.133, 0.0358 and 0.0096."""
MAX_EDEN_BITS = float(MAX_BITS)
GROUPS = tuple(1 << power for power in range(1, 13))
"""The sizes of groups between which the bits of `crosspolytope` lie: their error on Gaussian entries is known."""
MAX_TINY = 250
"""Vectors of up to this number of entries travel dense, in a kilobyte: a message has a head of about 70 bytes, and in a small
regression on features that are not scaled, an error that spreads evenly would cover the small entries."""
MAX_SMALL = 1000
"""Up to this number of learning entries, updates and versions have four bits an entry, half a kilobyte: fewer would save little
beside the head, and regressions of some hundred features bear little noise.
"""
ONE_BIT_ENTRIES = 1500.0
"""Until noise is measured, vectors of this size take one bit an entry, and smaller ones more: each entry matters more."""
FIRST_CONTACT_SHARE = 0.3
"""A node's first message holds the exact model; this share of its cost buys precision in the node's other messages."""
MEAN_ERROR = 0.2
"""Until noise is measured: the squared error of a round's mean, as a share of an update's squared norm.  Errors average out."""
VERSION_ERROR, MAX_VERSION_ERROR = 0.5, 3.0
"""Until noise is measured, the squared error of a version: at most the first share of an update's squared norm, and the second
of the version's own.

The mean of k updates changes the model less than one update does, so the first share counts k times.
"""
NOISE_SHARE, MAX_NOISE_SHARE = 0.7, 1.4
"""The noise that a run of 50 to 100 rounds of a large model may have in the end, over the squared distance that it moved.

It grows with the square root of the rounds, up to the second number, and shorter runs allow less: they end while learning is
still fast.
"""
GROWTH_POWER = 0.5
"""In a long run, the squared distance is expected to grow at most with this power of the rounds: most models slow down."""
SMALL_MODEL = 4400.0
"""Models of fewer entries allow less noise, in proportion: more of it falls on directions that matter."""
SAMPLING_FACTOR = 1.5
"""Noise of this many times the sampling noise is always allowed: training forgets both, and the sampling noise costs more."""
MANY_ROUNDS, VERY_MANY_ROUNDS = 100, 1000
"""Runs of fewer rounds than the first number are short; those of more than the second go on long after learning is fast.

A model that is late, or late noise, costs as much there as in a run of the second number, however many rounds came before.
"""
SENDS_PER_NODE = 12.0
"""How often a node sends each entry in a run, on average, if earlier updates have left a residual on it."""
MIN_ROUNDS, MAX_PARTICIPATION = 30, 2 / 3
"""Versions take STC in runs of this many rounds, where nodes miss versions: at most this share trains in a round."""
MIN_ROUNDS_OF_ALL, MIN_ROUNDS_OF_OTHER_STEPS = MANY_ROUNDS, 500
"""The rounds that STC needs where nodes miss no version, and those where the strategy makes another step than the mean."""
SENDS_BY_SERVER = 1.0
"""How often the server sends each entry in a run of up to 1,000 rounds, on average, if as much is unpublished as may be."""
UNPUBLISHED, UNPUBLISHED_POWER, OTHER_STEP = 1.25, 3.0, 0.1
"""The squared norm of the change that may be unpublished over that of the published one, in long runs (`Sketcher.ratio`).

In runs of fewer than 100 rounds, it falls with the second number as the power of the rounds, and `UNPUBLISHED_OF_ALL` is the
most: what they learn late is missing at the end, and they are too short to measure in time whether the model is late.  In runs
of more than 1,000 rounds, it falls with the square of the rounds, to `UNPUBLISHED_OF_ALL`: there, what was published long ago
makes the ratio small, however late the model is.  The third number is a factor where the strategy makes another step than the
mean.
"""
UNPUBLISHED_OF_ALL = 0.05
"""The same where nodes miss no version: no other nodes could have been drawn, so more of what is unpublished is learning."""
LATE_SOON, LATE, LATE_FACTOR = 0.32, 0.28, 0.1
"""The model is late if more than the first share of what the nodes ask for in the second eighth of the rounds is unpublished,
or more than the second share in the second quarter.

If the step is the mean, and the run has 100 rounds or more, less and less may then be unpublished: it falls with the square of
the rounds that are left, to `UNPUBLISHED_OF_ALL`.  What is unpublished at the end is missing in the result.  After the second
quarter, it is at most the third number of times as much.
"""
VERY_LATE = 0.42
"""If this share is unpublished, versions leave nothing out in the second half of a run of 100 to 1,000 rounds in which nodes
miss versions.

The largest share of a run that loses nothing was 0.38.  It was above 0.45 for autoencoders.
"""
MIN_FACTOR, MAX_DENSITY = 1 / 8, 0.25
"""The least factor by which the unpublished change lowers the density, and the largest density."""
FEW = 1 / 8
"""If at most this share of the nodes gets each version, a message mostly brings several, and their sum takes few bytes.

So versions take top-k in runs of fewer than `MIN_ROUNDS`: with the one magnitude of STC, large entries would wait for later
versions, and be missing at the end.  In long runs, versions take STC only then if a strategy makes another step than the mean:
with momentum, a server overshoots what is not published yet.
"""
FLAT = 0.115
"""If the largest hundredth of the entries hold less than this share of a change's squared norm, versions take no STC.

Of Gaussian entries they hold 0.085.  In the mean of the first rounds, it was 0.08 to 0.10 with Adam or RMSProp on the nodes,
and 0.13 to 0.83 with SGD, with momentum or without.  Where no entries stand out, the few that STC sends bring little, and the
model is late.
"""
CORRECTED, MAX_END, END_NOISE = 2.0, 0.25, 0.15
"""Training that corrects the share c of an error in each round leaves a fiftieth of its squared norm after 2 / c rounds.

If so many rounds are at most the second number of times the run, each of the last 2 / c rounds adds noise of at most the third
number of times the squared norm of an update.
"""
MARGIN, MOST_CORRECTED = 0.6, 1.8
"""The error of a link, over that with which errors would grow from round to round; and the largest share of an error that a
round may correct.  With 2, it would leave as much error as there was, on the other side.
"""
FLUSH_SHARE, FLUSH_FACTOR = 0.1, 4.0
"""In this last share of the rounds, nodes send with this many times the density, so that their residuals are sent."""


CORRECTS = "training corrects errors of earlier rounds by the end of the run, but not those of the last ones"
ASKED_AGAIN = "the nodes have asked again and again for what versions left out, and this one leaves nothing out"


@register("chosen by fedcomp: rounds, participation, measured noise")
def auto() -> Parts:
    """Return the automatic choice: `CompressedStrategy` replaces it in each round by the compressor that suits the run.

    The choice depends on the number of rounds, the share of the nodes that take part in a round, and the size of the model,
    and adapts to what is measured.

    * Updates: the cross-polytope, or from one bit on EDEN, with just enough bits.  The server measures the noise that they add
      to the model, and keeps it small beside the distance that the model has moved, and beside the noise of sampling.  If the
      strategy makes another step of the mean, the bits follow from the number of averaged updates.  If it reads each reply, as
      a median does, the bits are those for a single update.
    * Versions: in long runs STC, with a density that keeps what is not published yet in proportion to what is.  In short ones,
      the cross-polytope or EDEN, or top-k where few nodes take part in a round.  In long runs, the cross-polytope or EDEN take
      the place of STC where a late model does harm: if the strategy makes another step of the mean, unless few nodes take part
      in each of 500 rounds or more; if no entries of a change stand out, as with Adam on the nodes; for some rounds if the
      nodes have asked again and again for what is not published, and for the rest of the run if they ask fast for much of it,
      as nodes do that fit to the end; and where training soon corrects errors, as in a regression.  Then the last updates and
      versions are also more exact.
    * For tiny models, dense; for small ones, EDEN with four bits.

    For a single message, outside `CompressedStrategy`, it is ``eden(bits=1)``.
    """
    return Eden(1, "unbiased"), RotatedBits(), NoMemory()


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What the server knows of a round when it chooses.

    `n` is the number of entries of the vector; `server_round`, from 1, is one of `num_rounds`.  Of `num_nodes` nodes,
    `sampled` train in the round, and `averaged` updates of equal weight go into one mean: 1 if the strategy reads each reply.
    `changed` is the largest number of entries in the tensors that the updates of a round have changed, 0 before the first.
    `gain` is the error of `crosspolytope` on Gaussian entries over that on the updates, at the same bits: about 2 on those of
    models, whose norm is in few places.

    `mean_is_step` says that the strategy adds the mean of the updates to the model, so that their errors add up there.
    `noise` is the squared error that the messages of a round may add to the model, over the squared norm of an update
    (`NoiseBudget.share`).  If the step is not the mean, it is the error of the version alone, over the larger of the squared
    norms of an update and of a round's change.  `step` is the squared norm of a round's change over the same.
    `unpublished` is the squared norm of the unpublished change over that of the published one (`Sketcher.ratio`).  All three
    are 0 before they are measured.
    `late` is the share of the unpublished change in what the changes of the second quarter of the rounds have in common with
    all changes before them (`Lateness.share`); 0 before the second half.  `late_soon` is that of the second eighth; 0 before
    the second quarter.
    `corrected` is the share of an error in the model that one round of training corrects (`SelfCorrection.share`); 0 if it may
    be chance.  `is_guess` says that the end of the run is unknown, and `num_rounds` a guess.
    `repeats` says that versions must leave nothing out, because the nodes have asked again and again (`Repetition.pauses`).
    `demanded` says the same for the rest of the run, because they ask fast for much that is unpublished (`Demand.is_high`), or
    with growing force (`Growth.is_found`).
    `largest` is the share of a change's squared norm in its largest hundredth of entries; 0 before it is measured.
    `room` is the squared error that the longest update may have, over its squared norm, before the server scales it down to the
    bound of `Clipping`: unbiased codes lengthen an update by their error.
    With `both`, updates and versions add noise, and share it.  With `shared_start`, nodes make the first model themselves.
    Without rounds, `training` nodes train at a time, more than the `sampled` ones whose updates a version waits for.
    """

    n: int
    server_round: int
    num_rounds: int
    num_nodes: int
    sampled: int
    averaged: float
    changed: int = 0
    gain: float = 1.0
    mean_is_step: bool = True
    noise: float = 0.0
    step: float = 0.0
    room: float = math.inf
    late_soon: float = 0.0
    late: float = 0.0
    corrected: float = 0.0
    is_guess: bool = False
    repeats: bool = False
    demanded: bool = False
    largest: float = 0.0
    both: bool = True
    unpublished: float = 0.0
    shared_start: bool = False
    training: int = 0

    @property
    def learning(self) -> int:
        """The number of entries that learn, as far as it is known: the entries of a frozen backbone do not."""
        return self.changed or self.n

    @property
    def participation(self) -> float:
        """The share of the nodes that train in a round."""
        return min(1.0, max(1, self.sampled) / max(1, self.num_nodes))

    @property
    def requests(self) -> float:
        """The expected number of rounds in which a node trains."""
        return self.participation * self.num_rounds

    @property
    def first_contacts(self) -> float:
        """The expected share of messages that bring a node its first, whole model, with nodes drawn at random in each round."""
        if self.shared_start:
            return 0.0
        return min(1.0, (1 - (1 - self.participation) ** self.num_rounds) / self.requests)

    @property
    def tolerance(self) -> float:
        """The error allowed in this run, as a share of the error allowed in a long run."""
        return min(1.0, math.sqrt(self.num_rounds / MANY_ROUNDS))

    @property
    def versions_take_stc(self) -> bool:
        """Whether versions take STC: in short runs, what it leaves out is missing at the end."""
        if self.is_flat:
            return False
        if not self.mean_is_step:
            return self._reaches_few and self.num_rounds >= MIN_ROUNDS_OF_OTHER_STEPS and not self.is_guess
        return self.num_rounds >= (MIN_ROUNDS if self._nodes_miss_versions else MIN_ROUNDS_OF_ALL)

    @property
    def is_flat(self) -> bool:
        """Whether no entries of a change stand out, as with Adam on the nodes."""
        return 0 < self.largest < FLAT

    @property
    def leaves_nothing_out(self) -> bool:
        """Whether the version of this round brings what earlier ones have left out, and leaves nothing out itself."""
        return self.is_flat or self.repeats or self.demanded or self.is_very_late or self.is_self_correcting

    @property
    def is_late(self) -> bool:
        """Whether the nodes learn again and again what is unpublished."""
        return self.mean_is_step and (self.late_soon > LATE_SOON or self.late > LATE)

    @property
    def is_very_late(self) -> bool:
        """Whether the nodes hardly learn anything but what is unpublished."""
        if not (self.mean_is_step and self._nodes_miss_versions and MANY_ROUNDS <= self.num_rounds <= VERY_MANY_ROUNDS):
            return False
        return self.late > VERY_LATE

    @property
    def is_self_correcting(self) -> bool:
        """Whether training corrects an error within a part of the run: what is unpublished is then missing in the model."""
        return self.corrected * MAX_END * self.num_rounds >= CORRECTED

    @property
    def is_end(self) -> bool:
        """Whether it is too late for training to correct the errors of this round, but not those of earlier ones."""
        late = (self.num_rounds - self.server_round) * self.corrected < CORRECTED
        return self.is_self_correcting and late and not self.is_guess

    @property
    def versions_take_topk(self) -> bool:
        """Whether the versions of a short run take top-k, because a message mostly brings the sum of several."""
        return self.num_rounds < MIN_ROUNDS and self._reaches_few

    @property
    def noise_share(self) -> float:
        """The noise that the model may have in the end, over the squared distance that it moved by learning."""
        share = min(self.tolerance, NOISE_SHARE) * max(1.0, math.sqrt(self.num_rounds / MANY_ROUNDS))
        return min(share, MAX_NOISE_SHARE) * self._size

    @property
    def growth_power(self) -> float:
        """The power of the rounds with which the squared distance that the model moves may grow at most."""
        return GROWTH_POWER if self.versions_take_stc else 1.0

    @property
    def sampling_share(self) -> float:
        """The noise that a round may add in any case, over the sampling noise."""
        return SAMPLING_FACTOR * self._size if self.versions_take_stc else 0.0

    @property
    def may_be_unpublished(self) -> float:
        """The `unpublished` above which versions become denser than one `num_rounds`-th."""
        if self.mean_is_step:
            most = UNPUBLISHED if self._nodes_miss_versions else UNPUBLISHED_OF_ALL
        else:
            most = UNPUBLISHED * OTHER_STEP
        if self.num_rounds > VERY_MANY_ROUNDS:
            most = max(most * (VERY_MANY_ROUNDS / self.num_rounds) ** 2, UNPUBLISHED_OF_ALL)
        if self.num_rounds < MANY_ROUNDS:
            most = min(most * math.pow(self.num_rounds / MANY_ROUNDS, UNPUBLISHED_POWER), UNPUBLISHED_OF_ALL)
        elif self.is_late:
            left = (self.num_rounds - self.server_round + 1) / self.num_rounds
            factor = min(left**2, LATE_FACTOR if self.late > LATE else 1.0)
            most = max(most * factor, UNPUBLISHED_OF_ALL)
        return most * self._size

    @property
    def uplink_error(self) -> float:
        """The squared error that an update may have, over its squared norm."""
        if not self.noise:
            return min(MEAN_ERROR * self.tolerance, self._correctable) * self.averaged
        return min(self._noise * self._uplink_share, self._correctable) * self.averaged

    @property
    def downlink_error(self) -> float:
        """The squared error that a version may have, over its squared norm."""
        if not self.noise:
            most = min(VERSION_ERROR * self.averaged, MAX_VERSION_ERROR) * self.tolerance
            return min(most, self._correctable, END_NOISE if self.is_end else math.inf)
        error = self._noise * (1 - self._uplink_share if self._both_count else 1.0) / self._step
        return min(error, self._correctable)

    @property
    def _reaches_few(self) -> bool:
        """Whether a version goes to few of the nodes, so that a message mostly brings several."""
        return self.participation <= FEW

    @property
    def _nodes_miss_versions(self) -> bool:
        """Whether a third of the nodes or more do not train when a version comes, and so miss it."""
        return max(self.sampled, self.training) <= MAX_PARTICIPATION * self.num_nodes

    @property
    def _both_count(self) -> bool:
        """Whether `noise` is that of updates and versions, and not of one of them."""
        return self.both and self.mean_is_step

    @property
    def _correctable(self) -> float:
        """The error that each link may have, lest errors grow from round to round.

        It is over the squared norm of a version, and for the mean of the updates over that of an update.  A change that
        corrects the share c of an error has an error itself, in proportion to its squared norm.  With an error E of each link,
        the squared norm of what is left is multiplied by (1 - c)^2 + c^2 ((1 + E)^2 - 1), which is below 1 if E is below
        sqrt(2 / c) - 1.  Where nodes ask fast or again and again for what is unpublished, c may be 1.
        """
        share = min(MOST_CORRECTED, self.corrected or float(self.demanded or self.repeats))
        return MARGIN * (math.sqrt(2 / share) - 1) if share else math.inf

    @property
    def _noise(self) -> float:
        """`noise`, as far as it is allowed in this round."""
        return min(self.noise, END_NOISE) if self.is_end else self.noise

    @property
    def _size(self) -> float:
        """What a small model allows, as a share of what a large one allows."""
        return min(1.0, self.learning / SMALL_MODEL)

    @property
    def _uplink_share(self) -> float:
        """The share of the noise that updates add, with which both links together take the fewest bits.

        Bits fall with the inverse of an error.  A version of squared norm `step` is fetched by 1 / `participation` messages,
        and an update is one of `averaged`: the bits are 1 / (averaged u) + step / (participation v) for the shares u and v.
        """
        if not self._both_count:
            return 1.0
        return 1 / (1 + math.sqrt(self.averaged * self._step / self.participation))

    @property
    def _step(self) -> float:
        """`step`, above 0 even if the updates of a round cancel each other."""
        return max(self.step, 1e-9)


@dataclass(frozen=True, slots=True)
class Choice:
    """A compressor, and the reason for it in a few words."""

    compressor: Compressor
    reason: str


def choose_uplink(facts: RoundFacts, *, keep_residual: bool = False) -> Choice:
    """Return the compressor of the nodes' updates in a round.

    `keep_residual` says that earlier updates left something out: then they take STC, because only error feedback sends it.
    """
    if (tiny := _tiny(facts.n)) is not None:
        return tiny
    if keep_residual:
        density = min(SENDS_PER_NODE / facts.requests, MAX_DENSITY)
        flush = FLUSH_FACTOR if facts.server_round > (1 - FLUSH_SHARE) * facts.num_rounds else 1.0
        return _stc(
            density * flush, f"each node trains {facts.requests:.4g} times, and sends later what a message leaves out"
        )
    if (few := _few(facts)) is not None:
        return few
    if not facts.mean_is_step:
        facts = replace(facts, noise=0.0)  # it is that of a version
    least = {
        _mean(facts): eden_bits(facts.uplink_error),
        _first(facts.first_contacts): FIRST_CONTACT_SHARE * DENSE_BITS * facts.first_contacts,
    } | _small(facts)
    if not math.isinf(facts.room):
        reason = "with more noise, updates would be longer than their bound, and be scaled down"
        least[reason] = eden_bits(max(facts.room, MEAN_ERROR))
    return _unbiased(least, facts.gain)


def choose_downlink(facts: RoundFacts, *, keep_residual: bool = False) -> Choice:
    """Return the compressor of the version that a round publishes.

    `facts.sampled` counts all nodes that get messages.  `keep_residual` asks for error feedback, unless `facts` say that it
    does harm: then the version brings what earlier ones have left out.
    """
    if (tiny := _tiny(facts.n)) is not None:
        return tiny
    if (few := _few(facts)) is not None:
        return few
    last, reason = facts.server_round >= facts.num_rounds, "later versions bring what one leaves out"
    keep_residual = facts.versions_take_stc or keep_residual
    if keep_residual and facts.num_rounds >= MIN_ROUNDS and not facts.leaves_nothing_out:
        excess = facts.unpublished / facts.may_be_unpublished if facts.unpublished else 1.0
        density = SENDS_BY_SERVER / min(facts.num_rounds, VERY_MANY_ROUNDS) * max(excess, MIN_FACTOR)
        return _stc(density, reason)
    if (
        facts.num_rounds < MIN_ROUNDS
        and (facts.versions_take_topk or keep_residual)
        and not (facts.demanded or facts.is_self_correcting)
    ):
        if last:
            return Choice(topk(1.0, "natural"), "the last version is the result of the run, and leaves nothing out")
        return Choice(topk(MAX_DENSITY, "natural"), reason)
    if last:
        return Choice(
            eden(MAX_EDEN_BITS), "the last version is the result of the run, and nothing can correct it later"
        )
    first = facts.first_contacts
    returning = (1 - first) / facts.participation  # deltas that a message brings on average
    least = {
        _version(facts): eden_bits(facts.downlink_error),
        _first(first): FIRST_CONTACT_SHARE * DENSE_BITS * first / max(returning, 1e-9),
    } | _small(facts)
    choice = _unbiased(least)
    asks = facts.repeats or facts.demanded or facts.is_very_late
    return replace(choice, reason=ASKED_AGAIN) if asks and not facts.is_end else choice


def eden_bits(error: float) -> float:
    """Return the fewest bits an entry with which EDEN's squared error is at most the share `error` of the squared norm."""
    check_range("error", error, above=0)
    if error < EDEN_ERRORS[0]:
        return float(np.interp(-error, -np.array(EDEN_ERRORS), range(1, len(EDEN_ERRORS) + 1)))
    return (1 + EDEN_ERRORS[0]) / (1 + error)  # of a share of the entries, each scaled up by its inverse


def crosspolytope_bits(error: float) -> float:
    """Return the bits an entry with which the squared error of `crosspolytope` is this share of Gaussian entries' squares."""
    bits = [symbol_bits(m) / m for m in GROUPS]
    return float(np.exp(np.interp(math.log(error), np.log(_crosspolytope_errors()), np.log(bits))))


def crosspolytope_error(bits: float) -> float:
    """Return the squared error of `crosspolytope` on Gaussian entries, as a share of their squares."""
    known = [symbol_bits(m) / m for m in reversed(GROUPS)]
    return float(np.exp(np.interp(math.log(bits), np.log(known), np.log(_crosspolytope_errors()[::-1]))))


@lru_cache(maxsize=1)
def _crosspolytope_errors() -> list[float]:
    return [m / mean_largest(m) ** 2 - 1 for m in GROUPS]


def _tiny(n: int) -> Choice | None:
    if n > MAX_TINY:
        return None
    return Choice(
        dense(), f"a model of {n} entries takes a kilobyte at most, and none of its entries should drown in noise"
    )


def _few(facts: RoundFacts) -> Choice | None:
    if facts.learning > MAX_SMALL:
        return None
    return Choice(eden(MAX_EDEN_BITS), f"only {facts.learning} entries learn, and fewer bits would save little")


def _mean(facts: RoundFacts) -> str:
    if facts.noise and facts.is_end:
        return CORRECTS
    if facts.noise:
        return "this much noise is small beside the distance that the model has moved"
    if facts.averaged < 1.5:
        return "the strategy reads each update by itself, and nothing cancels its error"
    return f"a round averages {facts.averaged:.3g} updates, whose errors mostly cancel"


def _version(facts: RoundFacts) -> str:
    if facts.is_end:
        return CORRECTS
    if facts.noise:
        return "this much noise is small beside the distance that the model has moved"
    if facts.averaged < 1.5:
        return "a version must stay close to the update that it is made of"
    return f"a version averages {facts.averaged:.3g} updates, and an error in it changes the model little"


def _small(facts: RoundFacts) -> dict[str, float]:
    """Return the reason and the bits of a small model, until noise is measured."""
    if facts.noise:
        return {}
    reason = f"only {facts.learning} entries learn, and each of them matters more"
    return {reason: math.sqrt(ONE_BIT_ENTRIES / facts.learning)}


def _first(share: float) -> str:
    return f"{share:.0%} of the messages bring a node its first, whole model, beside which smaller updates would save little"


def _stc(density: float, reason: str) -> Choice:
    return Choice(stc(_rounded(min(density, MAX_DENSITY))), reason)


def _unbiased(least: Mapping[str, float], gain: float = 1.0) -> Choice:
    """Return EDEN with the largest of these numbers of bits, or the cross-polytope with the same error if that is below one.

    `least` maps reasons to numbers of bits.
    """
    reason = max(least, key=lambda each: least[each])
    bits = min(least[reason], MAX_EDEN_BITS)
    if bits >= 1:
        return Choice(eden(_rounded(bits)), reason)
    error = (1 + EDEN_ERRORS[0]) / bits - 1
    return Choice(crosspolytope(_rounded(crosspolytope_bits(error * gain))), reason)


def _rounded(setting: float) -> float:
    """Return `setting` with three digits, as it is in the text of a compressor."""
    return float(f"{setting:.3g}")
