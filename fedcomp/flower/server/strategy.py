"""Any Flower strategy, with compressed traffic both ways."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvgM, Result, Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import format_call
from fedcomp.flower import records
from fedcomp.flower._compat import log
from fedcomp.flower.global_random_workaround import IsolatedRandom, RngPreservingGrid
from fedcomp.flower.lazy_array import to_record
from fedcomp.flower.server.averaging import aggregate_mean
from fedcomp.flower.server.checkpoint import Checkpoint, scalars
from fedcomp.flower.server.participation import NodeState, Participation
from fedcomp.flower.server.reply_validator import ReplyValidator, ValidatedReply
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import (
    ReplyUse,
    difference_record,
    reply_use_of,
    restart,
    starts_from_published,
)
from fedcomp.methods import METHODS, stc
from fedcomp.sync import (
    SERVER_NODE,
    History,
    Ledger,
    NodeRegistry,
    Publisher,
    difference_arrays,
    start_replica,
    updated_arrays,
)
from fedcomp.wire import ServerMessage, codec_id, layout_of

MIN_USEFUL_RATIO = 1.5
"""A ratio below this is no compression to speak of."""


class CompressedStrategy(Strategy):
    """`inner`, sending frames instead of arrays.

    `inner` picks the nodes and their settings, and gets ordinary replies: FedAvg, FedAdam, FedProx, Krum and users' own
    strategies work unchanged.  Where it only averages, updates are summed sparsely and it gets one merged reply.  What it
    makes of them is compressed once, by `downlink`, and published: evaluation and clients hold the published model.

    `uplink` and `downlink` are compressors.  `local` are name patterns of tensors that stay on the nodes; the first message
    to a node is without them, and the app brings its own, as with ``load_state_dict(..., strict=False)``.  `seed` feeds
    compressors that draw random numbers.  With `checkpoint`, the whole state is written to that file before the first
    message of every `checkpoint_every`-th version leaves, the one that `start` begins with included.  Updates are summed in
    the order of the nodes' ids, or of what `order` makes of an id: Flower draws ids anew in each simulation, so that one that
    is to repeat needs another order.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        uplink: Compressor | None = None,
        downlink: Compressor | None = None,
        local: Iterable[str] = (),
        seed: int = 0,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        order: Callable[[int], int] = int,
    ) -> None:
        """Wrap `inner`; the compressors default to ``stc()``.  Raises `ValueError` for what cannot be."""
        if not isinstance(inner, Strategy):
            raise ValueError(f"the inner strategy is {inner!r}; an instance of a flwr Strategy is needed")
        if isinstance(inner, CompressedStrategy):
            raise ValueError("the inner strategy is a CompressedStrategy already; wrap the plain one")
        if checkpoint_every < 1:
            raise ValueError(f"checkpoint_every is {checkpoint_every}; it is at least 1")
        self.inner = inner
        self.uplink = uplink if uplink is not None else stc()
        self.downlink = downlink if downlink is not None else stc()
        for compressor in (self.uplink, self.downlink):
            if not isinstance(compressor, Compressor):
                raise ValueError(f"{compressor!r} is no compressor; fedcomp.parse makes one of a text")
            codec_id(compressor.entropy)  # raises where it cannot travel
        check_links(inner, self.uplink, self.downlink)
        if seed < 0:
            raise ValueError(f"seed is {seed}; it is at least 0")
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.seed = seed
        self.order = order
        self.ledger = Ledger()
        self.round = 0
        self._checkpoint = Path(checkpoint) if checkpoint is not None else None
        self._checkpoint_every = checkpoint_every
        self._settings = scalars(inner)
        self._offset = 0
        self._reported = False
        self._registry = NodeRegistry()
        self._participation = Participation()
        self._random = IsolatedRandom()
        # Numbers grow across restarts too: a node tells an old instruction from a new one by them.
        self._number = time.time_ns() // 1000
        self._epoch = 0
        self._training_id = secrets.randbits(64) | 1  # a name, which no result depends on
        self._log: Publisher | None = None
        self._kept_local: dict[str, Any] = {}
        self._arrays = ArrayRecord()
        self._inner_arrays = ArrayRecord()

    @property
    def version(self) -> int:
        """The published version."""
        return int(self._published().version)

    @property
    def nodes(self) -> dict[int, NodeState]:
        """What is known of each node that was ever asked: its version, when it was heard of, what it cost."""
        return self._participation.states(self._registry, self.ledger)

    @property
    def arrays(self) -> ArrayRecord:
        """The published model."""
        self._published()
        return self._arrays

    def summary(self) -> None:
        """Log the compressors, then the inner strategy's summary."""
        log(INFO, "\t├──> fedcomp: uplink %s, downlink %s", self.uplink, self.downlink)
        self.inner.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run `num_rounds` rounds as Flower's `Strategy.start` does.

        Called again, or after `load`, it goes on from the published model; only the first initial arrays count.
        """
        if self._log is None:
            self._begin(initial_arrays)
        elif initial_arrays is not self._arrays:
            if layout_of(records.to_arrays(initial_arrays), self.local) != self._published().layout:
                raise ValueError("the initial arrays are of another model than the published one")
            log(INFO, "fedcomp: goes on from version %d; the initial arrays are not used", self.version)
        self._offset = offset = self.round
        self._random.hold()
        if self._checkpoint is not None and self.round == 0:
            self.save(self._checkpoint)  # who comes back before the first round has ended is the same server still

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            return evaluate_fn(offset + server_round, arrays) if evaluate_fn else None

        try:
            result = super().start(
                grid,
                self._arrays,
                num_rounds,
                timeout,
                train_config,
                evaluate_config,
                evaluate if evaluate_fn else None,
            )
        finally:
            self._offset = 0
        result.arrays = self._arrays
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {offset + number: metrics for number, metrics in getattr(result, name).items()})
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages, each with the frames that its node needs."""
        self._hold(arrays)
        server_round += self._offset
        with self._random.used():
            messages = list(
                self.inner.configure_train(server_round, self._inner_arrays, config, RngPreservingGrid(grid))
            )
        self._participation.ask(message.metadata.dst_node_id for message in messages)
        return [self._instruct(message, server_round) for message in messages]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages, each with the frames that its node needs."""
        self._hold(arrays)
        server_round += self._offset
        with self._random.used():
            messages = list(
                self.inner.configure_evaluate(server_round, self._inner_arrays, config, RngPreservingGrid(grid))
            )
        self._participation.ask(message.metadata.dst_node_id for message in messages)
        return [self._instruct(message, server_round) for message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next published model and the inner strategy's metrics."""
        server_round += self._offset
        answers, failed = self._open(server_round, replies, train=True)
        arrays: ArrayRecord | None = None
        metrics: MetricRecord | None = None
        if self.uplink.memory.incremental and any(self._lost_its_estimate(answer) for answer in answers):
            self._begin_epoch()
        elif reply_use_of(self.inner) is ReplyUse.MEAN and all(answer.update is not None for answer in answers):
            with self._random.used():
                arrays, metrics = aggregate_mean(self.inner, server_round, answers, failed, self._published())
        else:
            for answer in answers:
                if answer.update is not None:
                    if _takes_differences(self.inner):
                        record: ArrayRecord = difference_record(difference_arrays(answer.update, self._published()))
                    else:
                        record = to_record(updated_arrays(answer.update, self._published()))
                    answer.message.content[answer.key] = record
            messages = [answer.message for answer in answers]
            with self._random.used():
                arrays, metrics = self.inner.aggregate_train(server_round, [*messages, *failed])
        if arrays is not None:
            self._publish(server_round, arrays)
            # Only now: an uplink that went into no model goes back to its node.
            for answer in answers:
                if answer.update is not None:
                    standing = self._registry[answer.node]
                    standing.acked, standing.summed = answer.ack, self.uplink.memory.incremental
        self.round = server_round
        if self._checkpoint is not None and server_round % self._checkpoint_every == 0:
            self.save(self._checkpoint)
        self._report(server_round)
        return (None if arrays is None else self._arrays), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        answers, failed = self._open(server_round, replies, train=False)
        with self._random.used():
            return self.inner.aggregate_evaluate(server_round, [*(answer.message for answer in answers), *failed])

    def _lost_its_estimate(self, answer: ValidatedReply) -> bool:
        return answer.update is not None and answer.update.first and self._registry[answer.node].summed

    def _begin_epoch(self) -> None:
        """Let all estimates start from zero, on both sides: of a node that lost its own, nobody can take the old one out."""
        log(
            WARNING,
            "fedcomp: a node has lost its estimate of the update; all of them begin anew, and this round goes back",
        )
        restart(self.inner)
        self._epoch = self._number
        for standing in self._registry.values():
            standing.summed = False

    def _uplink_text(self) -> str:
        """Return the uplink that nodes are to answer with."""
        if not self._epoch:
            return str(self.uplink)
        return format_call(self.uplink.name, dict(self.uplink.settings) | {"epoch": self._epoch})

    def save(self, path: str | Path) -> None:
        """Write everything that the server must not lose into one file, atomically."""
        self._random.hold()
        published, memory = self._published(), cast(Publisher, self._log)
        Checkpoint(
            round=self.round,
            replica=published,
            memory=memory.memory,
            history=tuple(memory.history.frames()),
            registry=self._registry,
            ledger=self.ledger,
            local=self._kept_local,
            number=self._number,
            epoch=self._epoch,
            training_id=self._training_id,
            random_state=self._random.state,
        ).save(path, self.inner, self._settings)

    def load(self, path: str | Path) -> None:
        """Go back to what `save` wrote, the inner strategy's state included; raise `FedcompError` for a damaged file."""
        saved = Checkpoint.load(path, self.inner)
        history = History(saved.replica.key_frame().size)
        for frame in saved.history:
            history.append(frame)
        self._log = Publisher(saved.replica, saved.memory, history)
        self._registry, self.ledger, self.round = saved.registry, saved.ledger, saved.round
        self._participation = Participation(self.ledger)
        self._kept_local = saved.local
        self._number = max(self._number, saved.number + 1)
        self._epoch, self._training_id = saved.epoch, saved.training_id or self._training_id
        self._random.state = saved.random_state
        self._renew()

    def _begin(self, arrays: ArrayRecord) -> None:
        plain = records.to_arrays(arrays)
        layout = layout_of(plain, self.local)
        self._kept_local = {tensor.name: plain[tensor.name] for tensor in layout.tensors if tensor.policy == "local"}
        self._log = Publisher.begin(start_replica(layout, plain))
        self._renew()

    def _published(self) -> Any:
        if self._log is None:
            raise RuntimeError("nothing is published yet; start() or load() comes first")
        return self._log.published

    def _renew(self) -> None:
        """Make the records of the published model, as the inner strategy and as everybody else sees it."""
        shared = self._published().arrays()
        self._inner_arrays = to_record(shared)
        for strategy in _nested(self.inner):
            if isinstance(strategy, FedAvgM) and strategy.current_arrays is not None:
                # It goes on from the model that it made; the nodes, and the next update, start from the published one.
                strategy.current_arrays = self._inner_arrays
        names = [tensor.name for tensor in self._published().layout.tensors]
        self._arrays = self._inner_arrays
        if self._kept_local:
            self._arrays = to_record({name: (shared | self._kept_local)[name] for name in names})

    def _hold(self, arrays: ArrayRecord) -> None:
        """Refuse arrays other than the published ones: nodes would train from a model that they were never sent."""
        if self._log is None:
            self._begin(arrays)
        elif arrays is not self._arrays:
            given = start_replica(self._published().layout, records.to_arrays(arrays))
            if given.fingerprint != self._published().fingerprint:
                raise ValueError("the arrays are not the published model; pass on what aggregate_train returned")

    def _instruct(self, message: Message, server_round: int) -> Message:
        """Put the frames that the node needs in the place of the dense arrays."""
        node = message.metadata.dst_node_id
        standing, published = self._registry[node], self._published()
        key = self._model_key(message)
        self._number += 1
        standing.number = self._number
        route = cast(Publisher, self._log).route(standing)
        seed = int(np.random.SeedSequence([self.seed, server_round]).generate_state(1, np.uint64)[0])
        newest = (published.version, published.fingerprint)
        training_id = (
            self._training_id if route.key else 0
        )  # deltas fit no other training's model, a key frame fits any
        uplink = self._uplink_text()
        data = ServerMessage(self._number, standing.acked, *newest, seed, uplink, route.frames, training_id).to_bytes()
        self.ledger.add(
            server_round,
            node,
            downlink_bytes=len(data) + records.size_beside(message.content, key),
            catch_up_bytes=route.catch_up_bytes,
            dense_downlink_bytes=sum(
                records.dense_size(record) for record in records.array_records(message.content).values()
            ),
        )
        # The inner strategy may have given several messages one content.
        content = message.content.copy()
        content[key] = records.pack(data)
        message.content = content
        return message

    def _model_key(self, message: Message) -> str:
        """Return the key of the published model in a message of the inner strategy."""
        mine, found = self._inner_arrays, records.array_records(message.content)
        same = [key for key, record in found.items() if record is mine] or [
            key
            for key, record in found.items()
            if record.keys() == mine.keys() and all(record[name].data == mine[name].data for name in mine)
        ]
        if not same:
            raise ValueError(
                f"{type(self.inner).__name__} sends node {message.metadata.dst_node_id} no record of the published model; "
                "only that can be compressed"
            )
        return same[0]

    def _open(
        self, server_round: int, replies: Iterable[Message], *, train: bool
    ) -> tuple[list[ValidatedReply], list[Message]]:
        weight_key = getattr(aggregating(self.inner), "weighted_by_key", None)
        dense_size = records.dense_size(self._inner_arrays)
        intake = ReplyValidator(
            self._published(), self._registry, self.ledger, server_round, dense_size, weight_key, self.order
        )
        replies = list(replies)
        self._participation.take(server_round, replies, self.ledger)
        return intake.open(replies, train=train)

    def _publish(self, server_round: int, arrays: ArrayRecord) -> None:
        begin = time.perf_counter()
        seed = int(np.random.SeedSequence([self.seed, server_round, 1]).generate_state(1, np.uint64)[0])
        memory = cast(Publisher, self._log)
        if not starts_from_published(self.inner):
            # What was kept back is in the distance to such a model already; from memory it would be sent twice.
            for name in self.downlink.memory.vectors:
                memory.memory.pop(name, None)
        memory.publish(records.to_arrays(arrays), self.downlink, seed)
        self.ledger.add(server_round, SERVER_NODE, encode_seconds=time.perf_counter() - begin)
        self._renew()

    def _report(self, server_round: int) -> None:
        """Log the ratio of the first round that brought updates, and warn where nothing is gained."""
        here = self.ledger.of_round(server_round)
        if self._reported or not here.dense_uplink_bytes:
            return
        self._reported = True
        ratio = here.dense_uplink_bytes / here.uplink_bytes
        log(
            INFO,
            "fedcomp: round %d: uplink %d bytes, %.1f times smaller than dense; downlink %d bytes, of dense %d",
            server_round,
            here.uplink_bytes,
            ratio,
            here.downlink_bytes,
            here.dense_downlink_bytes,
        )
        if ratio < MIN_USEFUL_RATIO and self.uplink.name != "dense":
            log(WARNING, "fedcomp: uplink %s hardly compresses this model: ratio %.2f", self.uplink, ratio)


def check_links(inner: Strategy, uplink: Compressor, downlink: Compressor) -> None:
    """Refuse a compressor on a link that it is not made for, and an uplink whose sums nobody keeps."""
    if uplink.name in METHODS and not METHODS.about(uplink.name).uplink:
        raise ValueError(f"{uplink} does not work as uplink; `python -m fedcomp methods` says which do")
    if downlink.name in METHODS and not METHODS.about(downlink.name).downlink:
        raise ValueError(f"{downlink} does not work as downlink; `python -m fedcomp methods` says which do")
    accumulates = reply_use_of(inner) is ReplyUse.INCREMENTS
    if uplink.memory.incremental != accumulates:
        sends = "increments of an estimate" if uplink.memory.incremental else "whole updates"
        needs = "increments" if accumulates else "whole updates"
        raise ValueError(
            f"uplink {uplink} sends {sends}, and {type(aggregating(inner)).__name__} takes {needs}; "
            "the uplink ef21 and the strategy EF21 belong together"
        )


def _takes_differences(inner: Strategy) -> bool:
    """Return whether a strategy reads replies as differences to the published model."""
    return reply_use_of(inner) in (ReplyUse.DIFFERENCES, ReplyUse.INCREMENTS)


def _nested(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and those that it wraps."""
    yield strategy
    for value in vars(strategy).values():
        if isinstance(value, Strategy):
            yield from _nested(value)
