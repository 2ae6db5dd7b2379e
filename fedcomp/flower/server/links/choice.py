"""The compressors of a run's two links: those that the user named; for `auto()` and `balanced()`, a choice for each round."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedYogi, Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.flower.compat import log
from fedcomp.flower.server.async_mode import AsyncMode
from fedcomp.flower.server.links.asked_for import RESIDUAL, AskedFor
from fedcomp.flower.server.links.balance_log import BalanceLog
from fedcomp.flower.server.links.growth import Growth
from fedcomp.flower.server.links.largest import largest_share
from fedcomp.flower.server.links.lateness import Lateness
from fedcomp.flower.server.links.measurements import Measurements
from fedcomp.flower.server.links.repetition import FAR_TOO_OFTEN, Repetition
from fedcomp.flower.server.links.returning import ReturningTraffic
from fedcomp.flower.server.links.sketch import Sketch, Sketcher
from fedcomp.flower.server.rounds.aggregation import weights_of
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import ReplyUse, reply_use_of, starts_from_published
from fedcomp.flower.strategies.server_optimizer import ServerOptimizer
from fedcomp.memory import State
from fedcomp.methods import (
    FLAT,
    Choice,
    RoundFacts,
    auto,
    balance_of,
    balanced,
    choose_downlink,
    choose_uplink,
    crosspolytope,
    crosspolytope_error,
    dense,
    eden,
    first_share,
    next_share,
    parse,
    stc,
    with_share,
)
from fedcomp.sync import Clipping, Publisher, Traffic

AUTO, BALANCED, CROSS_POLYTOPE, DENSE = auto(), balanced().name, crosspolytope().name, dense().name
SECOND_MOMENTS = (FedAdagrad, FedAdam, FedYogi, ServerOptimizer)
"""Strategies that square the mean, with its error: errors do not average out there."""
UNKNOWN_ROUNDS = 100
"""Rounds to come that a choice expects if nobody said how many there are."""
UNKNOWN_END = (
    "fedcomp: the number of rounds is unknown, because start() was not called: auto() expects %d more in each round, and sends "
    "no version as the last one; call start(num_rounds=...), or name the compressors"
)
ASKED_AGAIN = (
    "fedcomp: round %d: the nodes ask again and again for what the downlink, %s, leaves out; once it is sent, it is too much, "
    "and training may go wrong: name one that leaves out less, or auto()"
)
KEPT_TRAFFIC = 0.8
"""The weight of the earlier traffic when that of the newest round is added: an average over about five rounds.

Without rounds, over the versions in which as many nodes answer as in five rounds.
"""


@dataclass(slots=True)
class _Named:
    """What the nodes ask for of what a named downlink leaves out, since this server began to use it."""

    repetition: Repetition = field(default_factory=Repetition)
    growth: Growth = field(default_factory=Growth)

    @property
    def is_harmful(self) -> bool:
        """Whether training may go wrong with it."""
        return self.growth.is_found or self.repetition.times > FAR_TOO_OFTEN

    def add(self, asked: AskedFor) -> bool:
        """Count a round, and return `is_harmful`."""
        self.repetition.measure(asked.times)
        self.growth.add(asked)
        return self.is_harmful


class LinkCompressors:
    """The compressors of the current round, `uplink` and `downlink`; `num_rounds` is the last round, 0 if it is unknown.

    `mean_is_step` says that the strategy's step is the mean of the updates, so that their errors add up in the model.
    """

    def __init__(
        self,
        inner: Strategy,
        uplink: Compressor = AUTO,
        downlink: Compressor = AUTO,
        mode: AsyncMode | None = None,
        clipping: Clipping | None = None,
    ) -> None:
        """Start without a round, with the named compressors; `inner` tells whether the errors of updates average out."""
        self.uplink, self.downlink, self._mode = uplink, downlink, mode
        norm = clipping.norm if clipping is not None else 0.0
        self._bound = norm * norm  # norm**2 would raise for a huge one
        self._named_downlink = downlink
        self.num_rounds = 0
        averaging = aggregating(inner)
        self._averages = reply_use_of(inner) is ReplyUse.MEAN and not isinstance(averaging, SECOND_MOMENTS)
        self.mean_is_step = self._averages and type(averaging).aggregate_train is FedAvg.aggregate_train
        self._averaging = averaging if isinstance(averaging, FedAvg) else None
        self._measured = Measurements()
        self._returning = ReturningTraffic(mode.staleness if mode is not None else 0)
        self._log = BalanceLog()
        self._reached: set[int] = set()
        self._named = _Named()
        self._asked: AskedFor | None = None
        self._from_published = starts_from_published(inner)
        self._here: Sketch | None = None
        self._participation, self._balance, self._chosen = 1.0, 0.0, False
        self._round = 0

    @property
    def is_lossy(self) -> bool:
        """Whether a link makes errors, or leaves something out."""
        return {self.uplink.name, self.downlink.name} != {DENSE}

    @property
    def evaluation_uplink(self) -> Compressor:
        """The compressor of models that evaluation returns: lossless if `uplink` is, otherwise without a memory.

        No later message could make up for an error in such a model.
        """
        return self.uplink if self.uplink.name == DENSE else eden(bits=4)

    def begin_round(
        self,
        uplink: Compressor,
        downlink: Compressor,
        server_round: int,
        publisher: Publisher,
        nodes: Sequence[int],
        grid: Grid,
        traffic: Mapping[int, Traffic],
        busy: Set[int] = frozenset(),
    ) -> None:
        """Take `uplink` and `downlink`, or choose where they are `auto()` or `balanced()`.

        In the round, `nodes` begin to train the model of `publisher`, of those of `grid`, and those that are `busy` go on.
        `traffic` is that of the round before by node, its evaluation included.
        """
        measured, self._round = self._measured, server_round
        training = len(nodes) + len(busy)
        # A version waits for a buffer of updates: in its first round, more nodes may begin to train than it waits for.
        sampled = len(nodes) if self._mode is None else min(self._mode.buffer, training)
        self.reach(nodes[:sampled])
        fetched, sent = self._returning.take(server_round - 1, traffic, busy)
        kept = KEPT_TRAFFIC ** (sampled / training) if training else KEPT_TRAFFIC
        measured.fetched = kept * measured.fetched + fetched
        measured.sent = kept * measured.sent + sent
        if downlink != self._named_downlink:
            self._named_downlink, self._named = downlink, _Named()
        self.uplink, self.downlink, self._balance, self._chosen = uplink, downlink, 0.0, downlink == AUTO
        if AUTO in (uplink, downlink) and not self.num_rounds and server_round == 1:
            log(WARNING, UNKNOWN_END, UNKNOWN_ROUNDS)
        if AUTO not in (uplink, downlink):
            self._here, self._measured.correction.error = None, []
            if downlink.name != BALANCED:
                return
        # In short runs, versions leave something out even where no entries stand out.
        leaves_nothing_out = 0 < measured.known_largest < FLAT and not _has_residual(measured.downlink)
        measured.demand.begin(server_round, self._rounds, leaves_nothing_out=leaves_nothing_out)
        facts = self._facts(publisher, len(list(grid.get_node_ids())), sampled, training)
        self._participation = facts.participation
        choices: dict[str, Choice] = {}
        if downlink == AUTO:
            share = self._averaging.fraction_evaluate if self._averaging is not None else 0.0
            evaluating = int(share * facts.num_nodes)
            fetching = replace(facts, sampled=max(sampled, evaluating, measured.reached), both=uplink == AUTO)
            keep_residual = facts.versions_take_stc or (self.mean_is_step and _has_residual(measured.downlink))
            choices["downlink"] = choose_downlink(fetching, keep_residual=keep_residual)
            self.downlink = choices["downlink"].compressor
        elif downlink.name == BALANCED:
            measured.share = measured.share or first_share(facts.participation)
            self.downlink, self._balance = with_share(downlink, measured.share), balance_of(downlink)
        if uplink == AUTO:
            facts = replace(facts, both=self._chosen and RESIDUAL not in self.downlink.memory.vectors)
            choices["uplink"] = choose_uplink(facts, keep_residual=_has_residual(measured.uplink))
            self.uplink = choices["uplink"].compressor
        self._remember(choices, server_round)

    def _facts(self, publisher: Publisher, num_nodes: int, sampled: int, training: int) -> RoundFacts:
        """Return what is known of the round: `training` of `num_nodes` nodes train, and `sampled` make the next version."""
        measured, vector = self._measured, publisher.replica.vector
        facts = RoundFacts(
            vector.size,
            self._round,
            self._rounds,
            num_nodes,
            sampled,
            max(1.0, measured.evenness * sampled) if self._averages else 1.0,
            measured.changed,
            measured.gain,
            mean_is_step=self.mean_is_step,
            room=self._room,
            corrected=measured.correction.share,
            is_guess=not self.num_rounds,
            repeats=measured.repetition.pauses(self._round),
            demanded=measured.demand.is_high or measured.growth.is_found,
            late_soon=measured.lateness_soon.share if self._round > self._rounds // 4 else 0.0,
            late=measured.late if self._round > self._rounds // 2 else 0.0,
            largest=measured.known_largest,
            shared_start=publisher.start is not None,
            training=training,
        )
        if self.downlink != AUTO and not (self.mean_is_step and self.uplink == AUTO):
            return facts
        budget = measured.budget
        if self._here is None:
            self._here = np.add(*_sketches_of(publisher))
            budget.first = budget.first or self._here.tolist()
        left = max(1, facts.num_rounds - self._round + 1)
        noise = budget.share(left, facts.noise_share, facts.sampling_share, facts.growth_power)
        step = budget.step / budget.norm if noise else 0.0
        if step and facts.leaves_nothing_out and (residual := publisher.memory.get(RESIDUAL)) is not None:
            step += float(np.square(residual, dtype=np.float64).sum()) / budget.norm  # the next version brings it
        return replace(facts, noise=noise, step=step, unpublished=budget.unpublished)

    @property
    def _rounds(self) -> int:
        """The number of the last round, as far as it is known."""
        return self.num_rounds or self._round + UNKNOWN_ROUNDS

    @property
    def _room(self) -> float:
        """The squared error that the longest update may have, over its squared norm, before `Clipping` shortens it."""
        if not self._bound:
            return math.inf
        return self._bound / self._measured.longest - 1 if self._measured.longest else 0.0

    def _remember(self, choices: Mapping[str, Choice], server_round: int) -> None:
        """Keep the texts of the chosen compressors; log those whose method is not that of the round before."""
        news: list[str] = []
        for link in ("uplink", "downlink"):
            if (choice := choices.get(link)) is None:
                continue
            before = getattr(self._measured, link)
            if not before or parse(before).name != choice.compressor.name:
                news.append(f"{choice.compressor} as {link}, because {choice.reason}")
            setattr(self._measured, link, str(choice.compressor))
        if news:
            log(INFO, "fedcomp: round %d: auto() chooses %s", server_round, "; ".join(news))

    def reach(self, nodes: Sequence[int]) -> None:
        """Count `nodes` among those that get a message between two versions."""
        self._reached |= set(nodes)

    def before_version(self, change: Vector, publisher: Publisher) -> None:
        """Measure what the round's `change`, float32 (n,), has in common with what `publisher` has not published yet.

        It counts when the round ends: a change that cannot be published does not.
        """
        self._asked = None
        if self._from_published and RESIDUAL in self.downlink.memory.vectors:
            self._asked = AskedFor.of(change, publisher, published=self._chosen and self._lateness is not None)

    @property
    def _lateness(self) -> Lateness | None:
        """The lateness to which the current round counts."""
        if not (self.mean_is_step and self._rounds // 8 < self._round <= self._rounds // 2):
            return None
        return self._measured.lateness if self._round > self._rounds // 4 else self._measured.lateness_soon

    def _count(self, asked: AskedFor) -> None:
        """Count what a round has asked for; warn once if a downlink that the user named leaves out too much of it."""
        measured = self._measured
        if not self._chosen:
            if not self._named.is_harmful and self._named.add(asked):
                log(WARNING, ASKED_AGAIN, self._round, self._named_downlink)
            return
        measured.demand.add(asked, measured.budget.unpublished)
        measured.growth.add(asked)
        # Where a pause has shown that training keeps errors, as a network does, no further one is needed.
        if not (measured.repetition.pause and measured.correction.is_absent):
            measured.repetition.add(asked.times, self._round)
        # A pause leaves the grid, and another origin would count other changes.
        lateness = self._lateness
        if lateness is not None and asked.published is not None and not measured.repetition.pause:
            lateness.add(asked.unpublished, asked.unpublished + asked.published)

    def end_round(self, replies: Sequence[ValidatedReply], change: Vector, publisher: Publisher, changed: int) -> None:
        """Measure a round: its `replies`, and what `publisher` made of their `change`.

        The updates change tensors of `changed` entries.
        """
        measured = self._measured
        if self._asked is not None:
            self._count(self._asked)
        measured.changed = max(measured.changed, changed)
        key = self._averaging.weighted_by_key if self._averages and self._averaging is not None else ""
        if key and any(weights := weights_of(replies, key)):
            shares = [weight / max(weights) for weight in weights]  # squares of tiny weights would be 0
            measured.evenness = sum(shares) ** 2 / sum(share**2 for share in shares) / len(shares)
        if self._chosen or str(self.uplink) == measured.uplink:
            norm, error = self._measure_updates(replies)
            if self._here is not None:
                self._measure_version(self._here, replies, change, publisher, norm, error)
        # The most so far: a server that restarts has forgotten which nodes evaluated after its checkpoint.
        measured.reached, self._reached = max(measured.reached, len(self._reached)), set()
        if self._balance:
            balance = {"fetched": measured.fetched, "sent": measured.sent, "participation": self._participation}
            measured.share = next_share(measured.share, balance=self._balance, **balance)
            self._log.watch(self._round, self.downlink, measured.share, self._balance, **balance)

    def _measure_updates(self, replies: Sequence[ValidatedReply]) -> tuple[float, float]:
        """Measure the updates in `replies`, and return the squared norm and the squared error of that of one node.

        The errors of the cross-polytope are compared with those of Gaussian entries.
        """
        measured = self._measured
        found = [reply.update.expected_noise for reply in replies if reply.update is not None]
        norms, errors = np.array([each for each in found if each is not None and each[0]] or [(0.0, 0.0)]).T
        measured.add_norms(norms, self._bound)
        norm, error = measured.of_a_node(norms), measured.of_a_node(errors)
        if error and self.uplink.name == CROSS_POLYTOPE and str(self.uplink) == measured.uplink:
            expected = crosspolytope_error(float(str(dict(self.uplink.settings)["bits"])))
            measured.add_gain(expected / float(np.median(errors / norms)))
        return norm, error

    def _measure_version(
        self,
        here: Sketch,
        replies: Sequence[ValidatedReply],
        change: Vector,
        publisher: Publisher,
        norm: float,
        error: float,
    ) -> None:
        """Measure how far `change` has moved the model from that of the sketch `here`, and the error of the version.

        `norm` and `error` are those of the update of one node.
        """
        measured = self._measured
        sketcher, (published, residual) = Sketcher.of(publisher.replica.layout), _sketches_of(publisher)
        self._here, step = published + residual, sketcher.sketch(change)
        averaged = max(1.0, measured.evenness * len(replies))
        noise = error / averaged
        # Below 1 where an update is clipped.
        factors = [reply.update.factor for reply in replies if reply.update is not None]
        known = factors and (norm > 0 or self.uplink.name == DENSE)  # the mean of sparse updates tells nothing
        if known and measured.needs_largest(self._round):
            scale = float(np.mean(np.square(factors)))
            measured.add_largest(largest_share(change, noise * scale, measured.changed or change.size))
        if not self.mean_is_step:  # what another step makes of these errors is not known
            norm, noise = max(norm, _squared(step)), 0.0
        version_error = None
        if RESIDUAL not in self.downlink.memory.vectors:
            version_error = self._here - here - step
            noise += _squared(version_error)
        measured.correction.add(step, version_error)
        unpublished = sketcher.ratio(residual, published - measured.budget.first)
        measured.budget.add(self._here, step, noise=noise, norm=norm, averaged=averaged, unpublished=unpublished)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as plain values."""
        return self._measured.state()

    def restore(self, state: Mapping[str, Any], memory: State) -> None:
        """Continue from what `state` returned; `memory` is that of the downlink.

        Without a choice in `state`, a residual in `memory` was left by a compressor that the user named: STC sends it.
        Raises `CorruptError` for values that `state` does not return.
        """
        self._reached, self._here, self._named = set(), None, _Named()
        measured = Measurements.of(state)
        if not measured.uplink and not measured.downlink and RESIDUAL in memory and memory[RESIDUAL].any():
            measured.uplink = measured.downlink = str(stc())
        self._measured = measured


def _sketches_of(publisher: Publisher) -> tuple[Sketch, Sketch]:
    """Return the sketches of the published model and of the change that is not published yet."""
    sketcher, residual = Sketcher.of(publisher.replica.layout), publisher.memory.get(RESIDUAL)
    published = sketcher.sketch(publisher.replica.vector)
    return published, np.zeros_like(published) if residual is None else sketcher.sketch(residual)


def _squared(numbers: Sketch) -> float:
    return float(numbers @ numbers)


def _has_residual(text: str) -> bool:
    return bool(text) and RESIDUAL in parse(text).memory.vectors
