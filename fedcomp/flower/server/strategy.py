"""Any Flower strategy, with compressed traffic both ways."""

import secrets
import time
from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import Arrays, Vector
from fedcomp.flower import records
from fedcomp.flower._compat import log
from fedcomp.flower.global_random_workaround import IsolatedRandom, RngPreservingGrid
from fedcomp.flower.server.aggregation import Change, aggregate
from fedcomp.flower.server.checkpoint import Checkpoint
from fedcomp.flower.server.links import check_links
from fedcomp.flower.server.model_records import ModelRecords, follow_published
from fedcomp.flower.server.outbox import Outbox
from fedcomp.flower.server.participation import NodeState, Participation
from fedcomp.flower.server.replies import ReplyValidator, ValidatedReply
from fedcomp.flower.server.round_report import RoundReport
from fedcomp.flower.server.strategy_state import scalars_of
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import restart, starts_from_published
from fedcomp.methods import stc
from fedcomp.sync import SERVER_NODE, Ledger, NodeRegistry, Publisher, derive_seed, start_replica
from fedcomp.wire import layout_of

METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")
"""The fields of Flower's `Result` that hold metrics by round."""


class CompressedStrategy(Strategy):
    """`inner`, with frames in place of arrays in all messages.

    `inner` picks the nodes and their settings, and gets ordinary replies: FedAvg, FedAdam, FedProx, Krum and users' own
    strategies work unchanged.  If it only averages, updates are summed sparsely and it gets one merged reply.  Its result is
    compressed once, by `downlink`, and published: evaluation and clients hold the published model.

    Args:
        inner: The strategy to wrap.
        uplink: The compressor of the nodes' updates.
        downlink: The compressor of the server's changes.
        local: Name patterns of tensors that stay on the nodes.  The first message to a node comes without them, and the app
            brings its own, as with ``load_state_dict(..., strict=False)``.
        seed: The seed of compressors that draw random numbers, at least 0.
        checkpoint: A file that gets the whole state before the first message of every `checkpoint_every`-th version leaves,
            the first version included.
        checkpoint_every: At least 1.
        order: Gives the rank of a node id; updates are summed in that order.  Flower draws new ids in each simulation, so a
            simulation that must be repeatable needs another order than that of the ids.

    Raises:
        ValueError: An argument is of another type or out of range, or the strategy and the compressors do not fit together.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> strategy = CompressedStrategy(FedAvg(), uplink=stc(density=0.01))
    >>> str(strategy.uplink)
    'stc(density=0.01)'

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
        """Wrap `inner`; the compressors default to ``stc()``."""
        if not isinstance(inner, Strategy):
            raise ValueError(f"the inner strategy is {inner!r}; an instance of a flwr Strategy is needed")
        if isinstance(inner, CompressedStrategy):
            raise ValueError("the inner strategy is a CompressedStrategy already; wrap the plain one")
        if checkpoint_every < 1:
            raise ValueError(f"checkpoint_every is {checkpoint_every}; it is at least 1")
        if seed < 0:
            raise ValueError(f"seed is {seed}; it is at least 0")
        self.inner = inner
        self.uplink = uplink if uplink is not None else stc()
        self.downlink = downlink if downlink is not None else stc()
        check_links(inner, self.uplink, self.downlink)
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.seed = seed
        self.order = order
        self.ledger = Ledger()
        self.round = 0
        self._checkpoint = (Path(checkpoint), checkpoint_every) if checkpoint is not None else None
        self._settings = scalars_of(inner)
        self._offset = 0  # Flower counts the rounds of each start from 1
        self._participation = Participation()
        self._random = IsolatedRandom()
        self._report = RoundReport()
        self._publisher: Publisher | None = None
        self._local_arrays: Arrays = {}
        self._model = ModelRecords(ArrayRecord(), ArrayRecord())

    @property
    def publisher(self) -> Publisher:
        """The published model and what is known of the nodes; raise `RuntimeError` before `start` or `load`."""
        if self._publisher is None:
            raise RuntimeError("nothing is published yet; call start() or load() first")
        return self._publisher

    @property
    def version(self) -> int:
        """The number of the published version."""
        return self.publisher.replica.version

    @property
    def nodes(self) -> dict[int, NodeState]:
        """Node id -> state of each node that was ever asked: its version, when it last answered, its traffic."""
        return self._participation.states(self._publisher.nodes if self._publisher else NodeRegistry(), self.ledger)

    @property
    def arrays(self) -> ArrayRecord:
        """The published model."""
        return self._model.public if self.publisher else ArrayRecord()

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

        Called again, or after `load`, it continues from the published model; `initial_arrays` only need to be of the same
        model then.  Raises `ValueError` if they are not, or if they cannot be published.
        """
        if self._publisher is None:
            self._begin(initial_arrays)
        elif initial_arrays is not self._model.public:
            if layout_of(records.to_arrays(initial_arrays), self.local) != self._publisher.replica.layout:
                raise ValueError("the initial arrays are of another model than the published one")
            log(INFO, "fedcomp: goes on from version %d; the initial arrays are not used", self.version)
        self._offset = offset = self.round
        self._random.hold()
        if self._checkpoint is not None and self.round == 0:
            self.save(self._checkpoint[0])  # a server that restarts before the first round has ended is still the same

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            return evaluate_fn(offset + server_round, arrays) if evaluate_fn else None

        evaluate_or_none = evaluate if evaluate_fn else None
        configs = (train_config, evaluate_config, evaluate_or_none)
        try:
            result = super().start(grid, self._model.public, num_rounds, timeout, *configs)
        finally:
            self._offset = 0
        result.arrays = self._model.public
        for name in METRICS:
            setattr(result, name, {offset + number: metrics for number, metrics in getattr(result, name).items()})
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages, each with the frames that its node needs."""
        return self._configure(self.inner.configure_train, server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages, each with the frames that its node needs."""
        return self._configure(self.inner.configure_evaluate, server_round, arrays, config, grid)

    def _configure(
        self,
        configure: Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]],
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> list[Message]:
        if self._publisher is None:
            self._begin(arrays)
        self._model.check(arrays, self.publisher.replica)
        server_round += self._offset
        with self._random.used():
            messages = list(configure(server_round, self._model.inner, config, RngPreservingGrid(grid)))
        self._participation.ask(message.metadata.dst_node_id for message in messages)
        seed = derive_seed(self.seed, server_round)
        outbox = Outbox(self.publisher, self._model, self.ledger, str(self.uplink), seed, server_round)
        return [outbox.pack(message, type(self.inner).__name__) for message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next published model and the inner strategy's metrics."""
        server_round += self._offset
        publisher = self.publisher
        valid, failed = self._validate(server_round, replies, train=True)
        change: Change | None = None
        metrics: MetricRecord | None = None
        if any(publisher.lost_its_estimate(reply.node, reply.reply) for reply in valid):
            log(
                WARNING,
                "fedcomp: a node has lost its estimate; all estimates start from zero, and this round is undone",
            )
            restart(self.inner)
            publisher.begin_epoch()
        else:
            with self._random.used():
                change, metrics = aggregate(self.inner, server_round, valid, failed, publisher.replica)
        if change is not None:
            self._publish(server_round, *change)
            # Acknowledge only now: an update that went into no model goes back to its node.
            for reply in valid:
                if reply.update is not None:
                    publisher.acknowledge(reply.node, reply.reply, summed=self.uplink.memory.incremental)
        self.round = server_round
        if self._checkpoint is not None and server_round % self._checkpoint[1] == 0:
            self.save(self._checkpoint[0])
        self._report(server_round, self.ledger.of_round(server_round), self.uplink)
        return (None if change is None else self._model.public), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        valid, failed = self._validate(server_round, replies, train=False)
        with self._random.used():
            return self.inner.aggregate_evaluate(server_round, [*(reply.message for reply in valid), *failed])

    def save(self, path: str | Path) -> None:
        """Write everything that the server must not lose into one file, atomically."""
        self._random.hold()
        state = (self.round, self.publisher, self.ledger, self._local_arrays, self._random.state)
        Checkpoint(*state).save(path, self.inner, self._settings)

    def load(self, path: str | Path) -> None:
        """Return to the state that `save` wrote, the inner strategy's included; raise `FedcompError` for a damaged file."""
        number = self._publisher.number if self._publisher else 0
        saved = Checkpoint.load(path, self.inner)
        self._publisher, self.ledger, self.round = saved.publisher, saved.ledger, saved.round
        self._publisher.number = max(number, self._publisher.number)
        self._publisher.training_id = self._publisher.training_id or _training_id()
        self._participation = Participation(self.ledger)
        self._local_arrays = saved.local
        self._random.state = saved.random_state
        self._renew_records()

    def _begin(self, arrays: ArrayRecord) -> None:
        """Publish `arrays` as version 0."""
        plain = records.to_arrays(arrays)
        layout = layout_of(plain, self.local)
        self._local_arrays = {t.name: plain[t.name] for t in layout.tensors if t.policy == "local"}
        self._publisher = Publisher.begin(start_replica(layout, plain), _training_id())
        self._renew_records()

    def _renew_records(self) -> None:
        self._model = ModelRecords.of(self.publisher.replica, self._local_arrays)
        follow_published(self.inner, self._model.inner)

    def _validate(
        self, server_round: int, replies: Iterable[Message], *, train: bool
    ) -> tuple[list[ValidatedReply], list[Message]]:
        replies = list(replies)
        self._participation.take(server_round, replies, self.ledger)
        weight_key = getattr(aggregating(self.inner), "weighted_by_key", None)
        dense_size = records.dense_size(self._model.inner)
        validator = ReplyValidator(self.publisher, self.ledger, server_round, dense_size, weight_key, self.order)
        return validator.validate(replies, train=train)

    def _publish(self, server_round: int, change: Vector, exact: bytes) -> None:
        start_s = time.perf_counter()
        if not starts_from_published(self.inner):
            # The distance to such a model includes what was left out; from the memory it would be sent twice.
            self.publisher.forget(self.downlink)
        self.publisher.publish(change, exact, self.downlink, derive_seed(self.seed, server_round, 1))
        self.ledger.add(server_round, SERVER_NODE, encode_seconds=time.perf_counter() - start_s)
        self._renew_records()


def _training_id() -> int:
    """Return a random name for a training, which no result depends on; it is never 0."""
    return secrets.randbits(64) | 1
