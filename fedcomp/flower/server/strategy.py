"""Any Flower strategy, with compressed traffic both ways."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Unpack

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import check_bool, check_int
from fedcomp.flower.compat import IsolatedRandom, RngPreservingGrid, log, nested_strategies, overrides_start
from fedcomp.flower.records import Messages, are_equal, array_records
from fedcomp.flower.server.arguments import check_callable, check_record, patterns_of, tied_of
from fedcomp.flower.server.async_mode import AsyncMode, check_async
from fedcomp.flower.server.buffered_grid import BufferedGrid
from fedcomp.flower.server.dp_strategies import check_order
from fedcomp.flower.server.exchange import Exchange
from fedcomp.flower.server.links.checks import check_dtypes, check_links, warn_of_sparse
from fedcomp.flower.server.links.choice import LinkCompressors
from fedcomp.flower.server.message_kind import MessageKind
from fedcomp.flower.server.model.checkpoint import Checkpoint, explained, set_aside
from fedcomp.flower.server.model.published_model import PublishedModel
from fedcomp.flower.server.model.server_state import ServerState
from fedcomp.flower.server.model.strategy_state import settings_of
from fedcomp.flower.server.model.traffic_file import TrafficFile
from fedcomp.flower.server.old_keywords import OldKeywords, with_old_keywords
from fedcomp.flower.server.own_start import Evaluate, FramesOnlyGrid, start_rounds
from fedcomp.flower.server.queries import QueryGrid
from fedcomp.flower.server.rounds.aggregation import (
    Change,
    aggregate,
    counted,
    log_assumed_start,
    log_returned,
    undone_on_error,
    without_repeated_losses,
)
from fedcomp.flower.server.rounds.early_replies import ParsingGrid
from fedcomp.flower.server.rounds.failed_rounds import FailedRounds
from fedcomp.flower.server.rounds.model_warnings import ModelWarnings
from fedcomp.flower.server.rounds.participation import NodeState
from fedcomp.flower.server.rounds.round_hook import OnRound, RoundHook
from fedcomp.flower.server.rounds.traffic_log import log_round
from fedcomp.flower.server.rounds.unchanged import keep_unchanged, log_unchanged, log_unchanged_exact, unchanged_tensors
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.flower.server.uncompressed import UncompressedStrategy, check_uncompressed, is_incompressible
from fedcomp.methods import auto
from fedcomp.sync import SERVER_NODE, Clipping, Ledger, NodeRegistry, Publisher, check_masked, derive_seed
from fedcomp.wire import selected_entries


class CompressedStrategy(Strategy):
    """`inner`, with frames in place of arrays in all messages.

    `inner` picks the nodes and their settings, and gets ordinary replies: FedAvg, FedAdam, FedProx, Krum and users' own
    strategies work unchanged.  If it only averages, updates are summed sparsely and it gets one merged reply.  Its result is
    compressed once, by `downlink`, and published: evaluation and clients hold the published model.

    Flower's strategies of differential privacy belong inside: ``CompressedStrategy(DifferentialPrivacy...(FedAvg(...)))``.
    Those that clip on the server clip each decoded update.  Under those that clip on the client, nodes send updates whose
    decoded norm is at most the clipping norm.

    Args:
        inner: The strategy to wrap.
        uplink: The compressor of the nodes' updates, by default ``auto()``, which is chosen for each round.
        downlink: The compressor of the server's changes, by default ``auto()``.
        local: Name patterns of tensors that stay on the nodes.  The first message to a node comes without them, and the app
            brings its own, as with ``load_state_dict(..., strict=False)``.
        tied: Groups of names that are one tensor, as ``[("embedding.weight", "output.weight")]``.  It travels once, and all its
            names hold the same values on both sides.  A reply in which they differ is refused.
        exact: Name patterns of tensors that are never compressed, because an error harms more there than in a weight: such as
            ``["*.scale"]`` of fake quantization.  Integers, bools and BatchNorm statistics need not be named.
        records: The compressors of further ArrayRecords in training replies by their keys, such as SCAFFOLD's control variates:
            ``{"control": fedcomp.stc(density=0.01)}``.  Each node keeps a memory for each of them, and the inner strategy gets
            ordinary records.  Records that add up over the rounds, as differences do, need a compressor with a memory; those of
            which only the newest counts need one without, such as ``eden(bits=4)``.  Further records in messages to nodes stay
            dense, because they have no versions; the log names them.
        clipping: The largest l2 norm of an update, as in ``Clipping(median=3)``; None for no bound.  A longer update is scaled
            down before `inner` gets it.
        seed: The seed of compressors that draw random numbers, at least 0.
        checkpoint: The file that gets the whole state, and how often, as in ``Checkpoint("run.npz", every=10)``.
        shared_start: Whether nodes can make the initial model themselves, by `CompressionMod(start=...)`: then it is not sent.
            A node that makes another one, differing in as little as a bit, says so, and gets the model in its next round.
        order: Gives the rank of a node id; updates are summed in that order.  Flower draws new ids in each simulation, so a
            simulation that must be repeatable needs another order than that of the ids.
        mode: ``AsyncMode(buffer=10)`` publishes a version with every ten updates, while the other nodes go on training.  A
            round is then what leads to a version; `inner` decides how many nodes train at a time; of the nodes that it picks
            for evaluation, those evaluate that are not training.  None, the default, waits for all nodes of a round.
        on_round: Called with a `Round` when a round is over, evaluation included: before the next round begins, and before
            `start` returns.  An exception ends `start`, as one of `evaluate_fn` does; it may stop a run early on purpose.
            A run that resumes from a checkpoint calls it again for the rounds after that checkpoint; the round of the
            checkpoint itself is left out if the server ended during its evaluation.
        **old: The deprecated keywords `clip_norm`, `clip_median` and `checkpoint_every`.

    Raises:
        ValueError: An argument is of another type or out of range, or the strategy and the compressors do not fit together.

    Examples:
        >>> import fedcomp
        >>> from flwr.serverapp.strategy import FedAvg
        >>> strategy = CompressedStrategy(FedAvg(), uplink=fedcomp.stc(density=0.01))
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
        tied: Iterable[Iterable[str]] = (),
        exact: Iterable[str] = (),
        records: Mapping[str, Compressor] | None = None,
        clipping: Clipping | None = None,
        seed: int = 0,
        checkpoint: Checkpoint | str | Path | None = None,
        shared_start: bool = False,
        order: Callable[[int], int] = int,
        mode: AsyncMode | None = None,
        on_round: OnRound | None = None,
        **old: Unpack[OldKeywords],
    ) -> None:
        if isinstance(inner, Strategy) and any(
            isinstance(each, CompressedStrategy) for _, each in nested_strategies(inner)
        ):
            raise ValueError("the inner strategy is or holds a CompressedStrategy already; wrap the plain one")
        check_int("seed", seed, 0, 2**64 - 1)
        check_bool("shared_start", shared_start)
        check_callable("order", order, "gives the rank of a node id")
        self.inner = inner
        self.uplink = uplink if uplink is not None else auto()
        self.downlink = downlink if downlink is not None else auto()
        clipping, self._checkpoint = with_old_keywords(clipping, checkpoint, old)
        check_links(inner, self.uplink, self.downlink, clipping)
        warn_of_sparse(inner, self.uplink)
        self.mode = mode
        if mode is not None:
            check_async(inner, mode, self.uplink)
        self._links = LinkCompressors(inner, self.uplink, self.downlink, mode, clipping)
        self.local, self.exact, self.tied = patterns_of("local", local), patterns_of("exact", exact), tied_of(tied)
        self.seed, self.order, self.round = int(seed), order, 0
        self.shared_start = shared_start
        self._traffic_file = TrafficFile(Path(self._checkpoint.path)) if self._checkpoint is not None else None
        self._hook = RoundHook(on_round)
        self._settings = settings_of(inner)
        self._offset = 0  # the rounds before the current start of Flower's
        self._failed = FailedRounds()
        self._warnings = ModelWarnings()
        self._has_begun = False  # by `start`, since the last `load`
        self._random = IsolatedRandom()
        self._buffered: BufferedGrid | None = None
        self._exchange = Exchange(inner, records, order, clipping, mode)
        self._last_result: ArrayRecord | None = None  # of a model that is not compressed
        self._model: PublishedModel | None = None  # set last: from then on, the settings of `inner` go there

    def __getattr__(self, name: str) -> Any:
        """Return what the inner strategy has beyond this one: its settings, and methods of its own."""
        # Without `inner`, a copy is being made; a property of the class that has failed says why.
        if name == "inner" or name.startswith("__") or hasattr(type(self), name) or not hasattr(self.inner, name):
            return object.__getattribute__(self, name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute, that of the inner strategy if only it has this one.

        A subclass sets attributes of its own before it calls ``super().__init__``, or with names that `inner` does not have.
        """
        own = "_model" not in vars(self) or name in vars(self) or hasattr(type(self), name)
        if own or not hasattr(self.inner, name):
            super().__setattr__(name, value)
        else:
            setattr(self.inner, name, value)

    @property
    def model(self) -> PublishedModel:
        """The published model as records; raise `RuntimeError` before `start` or `load`."""
        if self._model is None:
            raise RuntimeError("nothing is published yet; call start() or load() first")
        return self._model

    @property
    def publisher(self) -> Publisher:
        """The published replica and what is known of the nodes; raise `RuntimeError` before `start` or `load`."""
        return self.model.publisher

    @property
    def ledger(self) -> Ledger:
        """The traffic of the run."""
        return self._exchange.ledger

    @property
    def version(self) -> int:
        """The number of the published version."""
        return self.publisher.replica.version

    @property
    def compressors(self) -> tuple[str, str]:
        """The texts of the compressors of the newest round, up and down: where they are chosen, those that were chosen."""
        return str(self._links.uplink), str(self._links.downlink)

    @property
    def failed_rounds(self) -> tuple[int, ...]:
        """The rounds since `start` that had no result, because the inner strategy raised an exception or its model diverged."""
        return tuple(self._failed.numbers)

    @property
    def evaluate_metrics(self) -> MetricRecord | None:
        """For `evaluate_fn`: what the inner strategy aggregated of the nodes' evaluate replies in this round, if anything."""
        return self._hook.evaluate_metrics

    @property
    def nodes(self) -> dict[int, NodeState]:
        """Node id -> state of each node that was ever asked: its version, when it last answered, its traffic."""
        registry = self._model.publisher.nodes if self._model else NodeRegistry()
        return self._exchange.participation.states(registry, self.ledger)

    @property
    def arrays(self) -> ArrayRecord:
        """The published model."""
        return self.model.public

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
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run `num_rounds` rounds as Flower's `Strategy.start` does, or as that of the inner strategy if it has its own.

        Called again, or after `load`, it continues from the published model; `initial_arrays` only need to be of the same
        model then.  A model without floating tensors, such as XGBoost's bytes, travels as it is, and training starts from
        `initial_arrays`: unless they are the last result, rounds count from 1 again, and the ledger is a new one.

        A round in which the inner strategy raises an exception while it aggregates, or makes a model with numbers that cannot
        be sent, has no result: the log says why, the updates go back to their nodes, and the next round begins.  What the
        inner strategy has added to moments of its own stays there.  If no round has a result, the last of these exceptions in a
        round with updates is raised at the end; without any, a `NoUpdateError` if the model is still the first one.

        Raises `ValueError` if the arrays are of another model, or if they cannot be published.
        """
        check_record(initial_arrays)
        self._failed.begin()
        steps: Strategy = self
        offset = self.round  # each start of Flower's counts from 1
        if self._model is None and not self.local and is_incompressible(initial_arrays):
            check_uncompressed(initial_arrays, self._checkpoint, self._exchange.further_records.compressors, self.mode)
            if self._last_result is not None and not are_equal(initial_arrays, self._last_result):  # another training
                offset = 0
                self._exchange.restore(Ledger(), {})
            steps = UncompressedStrategy(self.inner, self._exchange, self._hook, self._failed, offset)
        else:
            if self.mode is not None:
                grid = self._buffered = BufferedGrid(grid, self.mode)
            grid = ParsingGrid(grid, lambda replies: self._exchange.arrive(replies, self.publisher))
            grid = FramesOnlyGrid(grid, type(self.inner).__name__)
            initial_arrays = self._begin(initial_arrays, num_rounds)

        grid = QueryGrid(grid, self._exchange.count_dense)
        self._offset, self._exchange.round = offset, offset + 1
        try:
            with self._random.handed_back():
                result = start_rounds(
                    self.inner,
                    steps,
                    grid,
                    initial_arrays,
                    offset,
                    self._hook,
                    evaluate_fn,
                    num_rounds=num_rounds,
                    timeout=timeout,
                    train_config=train_config,
                    evaluate_config=evaluate_config,
                )
            self._hook.end(self.ledger)
            self._exchange.log_totals()
            self._failed.end(untrained=offset == 0 if steps is not self else self.version == 0)
        finally:
            self._offset, self._buffered = 0, None
            self._hook.cancel()
        if steps is not self:
            self.round, self._last_result = offset + num_rounds, getattr(result, "arrays", None)
        elif not overrides_start(self.inner):  # such a start may return the best model instead
            result.arrays = self.arrays
        return result

    def _begin(self, arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Publish `arrays`, or continue from the published model; return that, with which `num_rounds` rounds begin."""
        if self._model is None:
            self._model = self._publish_first(arrays)
        elif arrays is not self._model.public:
            self._model.check_layout(arrays, self.local, self.tied, self.exact)
            is_other = self._has_begun and not are_equal(arrays, self._model.public)
            text = "fedcomp: continues from version %d; the initial arrays are not used%s"
            more = ", and they differ from it: a new training needs a new CompressedStrategy" if is_other else ""
            log(WARNING if is_other else INFO, text, self.version, more)
        self._has_begun = True
        check_dtypes(self.inner, self.publisher.replica.layout)
        if self.publisher.replica.layout.masks:
            check_masked(self.uplink)
        self._links.num_rounds = self.round + num_rounds
        self._random.hold()
        if self._checkpoint is not None:
            with explained(Path(self._checkpoint.path)):
                if self.round == 0:
                    set_aside(Path(self._checkpoint.path))
            if self.round == 0:
                self.save(self._checkpoint.path)  # for a server that restarts before the first round has ended
        return self.arrays

    def _publish_first(self, arrays: ArrayRecord) -> PublishedModel:
        model = PublishedModel.begin(arrays, self.local, self.tied, self.exact, shared_start=self.shared_start)
        model.lead(self.inner)
        return model

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages, each with the frames that its node needs.

        Raises `ValueError` if one of Flower's strategies of differential privacy wraps this one.
        """
        if server_round == 1:
            check_order(self)
        self._hook.end(self.ledger)  # the round before
        return self._configure(MessageKind.TRAIN_MESSAGE, server_round, arrays, config, grid)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """As `configure_train`."""
        return self._configure(MessageKind.EVALUATE_MESSAGE, server_round, arrays, config, grid)

    def _configure(
        self, kind: MessageKind, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        if self._model is None:
            self._model = self._publish_first(arrays)
        self._model.check(arrays, begins=server_round == 1)
        server_round += self._offset
        self._exchange.round = server_round
        train, grid = kind is MessageKind.TRAIN_MESSAGE, RngPreservingGrid(grid)
        configure = self.inner.configure_train if train else self.inner.configure_evaluate
        with self._random.used():
            messages = list(configure(server_round, self._model.inner, config, grid))
        if self._buffered is not None:
            messages = self._buffered.idle(messages, train=train)
        nodes = [message.metadata.dst_node_id for message in messages]
        if train:
            links, traffic = (self.uplink, self.downlink), self.ledger.nodes_of_round(server_round - 1)
            self._links.begin_round(*links, server_round, self.publisher, nodes, grid, traffic, self._busy)
            uplink = self._links.uplink
        else:
            self._links.reach([each.metadata.dst_node_id for each in messages if array_records(each.content)])
            uplink = self._links.evaluation_uplink
        seed = derive_seed(self.seed, server_round)
        self._exchange.pack(kind, server_round, messages, self._model, uplink, seed, self._busy)
        return messages

    @property
    def _busy(self) -> frozenset[int]:
        """The nodes that go on training while a version is published."""
        return self._buffered.busy if self._buffered is not None else frozenset()

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next published model and the inner strategy's metrics."""
        server_round += self._offset
        valid, failed = self._exchange.validate(server_round, replies, self.model, self._busy, train=True)
        valid = without_repeated_losses(valid, self.publisher)
        if not valid and self._exchange.asked:
            self._failed.miss(server_round, failed)
        before, metrics = self.version, None
        with self._failed.guard(server_round, "training", counts=True), undone_on_error(self.inner, self.publisher):
            with self._random.used():
                change, metrics = aggregate(self.inner, server_round, valid, failed, self.publisher)
            if change is not None:
                self._publish(server_round, valid, change)
            elif self._links.uplink.memory.vectors:
                log_returned(self.inner, server_round, valid)
        if published := self.version != before:
            self._failed.succeed()
        else:
            self.model.lead(self.inner)
        if server_round in self._failed.numbers:
            self._exchange.fail()
        self.round = server_round
        self._save_if_due()
        self._exchange.log_dense_records(server_round)
        log_round(server_round, self._links.num_rounds, self.ledger, self._links.uplink)
        self._hook.begin(server_round, metrics)
        return (self.model.public if published else None), metrics

    def _publish(self, server_round: int, replies: Sequence[ValidatedReply], change: Change) -> None:
        """Publish the next version, which `replies` led to, and acknowledge their updates."""
        published = self.publisher.replica
        unchanged = unchanged_tensors(replies, published)
        change = (change[0], keep_unchanged(*change, unchanged, replies, published))
        self._warnings.before_version(
            server_round,
            replies,
            change[0],
            self.publisher,
            unchanged,
            is_mean=self._links.mean_is_step,
            is_lossy=self._links.is_lossy,
        )
        if not published.version:
            log_unchanged(unchanged, published.layout)
            log_unchanged_exact(change[1], published)
            if self._links.downlink.memory.vectors:
                log_assumed_start(self.inner)
        self._links.before_version(change[0], self.publisher)
        start_s = time.thread_time()
        self.model.publish(change, self._links.downlink, derive_seed(self.seed, server_round, 1), self.inner)
        self.ledger.add(server_round, SERVER_NODE, encode_seconds=time.thread_time() - start_s)
        self._warnings.after_version(replies, change[0], self.publisher)
        # Acknowledge only now: an update that went into no model goes back to its node.
        summed = self._links.uplink.memory.incremental
        for reply in counted(self.inner, replies):
            if reply.reply is not None:
                returned = self.mode.returned(reply.reply.staleness) if self.mode is not None else 0.0
                self.publisher.acknowledge(reply.node, reply.reply, summed=summed, returned=returned)
        self.publisher.forget_sent(self._busy)
        changed = sum(size for _, size in selected_entries(published.layout, ~unchanged))
        self._links.end_round(replies, change[0], self.publisher, changed)

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        valid, failed = self._exchange.validate(server_round, replies, self.model, self._busy, train=False)
        self._exchange.log_dense_records(server_round)
        metrics = None
        with self._failed.guard(server_round, "evaluation", counts=False), self._random.used():
            metrics = self.inner.aggregate_evaluate(server_round, [*(reply.to_message() for reply in valid), *failed])
        self._hook.add(server_round, evaluate=metrics)
        if self._exchange.asked:  # nodes fetched the version, and the strategy has drawn them
            self._save_if_due()
        return metrics

    def _save_if_due(self) -> None:
        if self._checkpoint is not None and self._checkpoint.is_due(self.round):
            self.save(self._checkpoint.path)

    def save(self, path: str | Path) -> None:
        """Write everything that the server must not lose into one file, atomically.

        If it is the file of `checkpoint`, the traffic file next to it grows by the new rows.  Raises `OSError` if the disk is
        full: the file that was there before is whole, and the traffic file fits it.
        """
        self._random.hold()
        file = self._traffic_file
        with explained(Path(path)):
            recorded = file.append(self.ledger) if file is not None and file.belongs_to(path) else 0
            state = ServerState(
                self.round,
                self.publisher,
                self.ledger,
                self.model.local,
                self._random.state,
                self._exchange.participation.heard,
                recorded,
                self._links.state(),
            )
            state.save(path, self.inner, self._settings)

    def load(self, path: str | Path) -> None:
        """Return to the state that `save` wrote, the inner strategy's included; raise `FedcompError` for a damaged file.

        From another file than that of `checkpoint`, the traffic file is rewritten, and starts with the rounds in this one.
        """
        saved = ServerState.load(path, self.inner)
        self._has_begun, self._warnings = False, ModelWarnings()
        self._model = PublishedModel(saved.publisher, saved.local)
        self._model.lead(self.inner)
        self._exchange.restore(saved.ledger, saved.heard)
        if self._traffic_file is not None:
            size = saved.recorded if self._traffic_file.belongs_to(path) else 0
            self._traffic_file.resume(size, saved.ledger)
        self.round = saved.round
        self._random.state = saved.random_state
        self._links.restore(saved.choice, saved.publisher.memory)
