"""Any Flower strategy, with compressed traffic both ways."""

import time
from collections.abc import Callable, Iterable, Mapping
from logging import INFO
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcomp.compressor import Compressor
from fedcomp.core import check_int
from fedcomp.flower._compat import log
from fedcomp.flower.global_random_workaround import IsolatedRandom, RngPreservingGrid
from fedcomp.flower.records import Messages, dense_size, dense_sizes
from fedcomp.flower.server.aggregation import aggregate
from fedcomp.flower.server.checkpoint import Checkpoint
from fedcomp.flower.server.choice import LinkCompressors
from fedcomp.flower.server.dense_records import DenseRecords, Link
from fedcomp.flower.server.dp_strategies import check_order, sent_clipping_norm
from fedcomp.flower.server.further_records import FurtherRecords
from fedcomp.flower.server.links import check_links, evaluation_uplink, log_ratio, log_totals
from fedcomp.flower.server.missing_mod import check_mod
from fedcomp.flower.server.own_start import FramesOnlyGrid, overrides_start, renumber, start_rounds
from fedcomp.flower.server.participation import NodeState, Participation
from fedcomp.flower.server.published_model import PublishedModel
from fedcomp.flower.server.replies import ReplyValidator, ValidatedReply
from fedcomp.flower.server.round_hook import OnRound, RoundHook
from fedcomp.flower.server.strategy_state import nested_strategies, scalars_of
from fedcomp.flower.server.uncompressed import UncompressedStrategy, is_incompressible
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.methods import auto
from fedcomp.sync import SERVER_NODE, Ledger, NodeRegistry, Publisher, derive_seed

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
Configure = Callable[[int, ArrayRecord, ConfigRecord, Grid], Messages]
"""`configure_train` or `configure_evaluate` of a strategy."""


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
        records: The compressors of further ArrayRecords in training replies by their keys, such as SCAFFOLD's control variates:
            ``{"control": fedcomp.stc(density=0.01)}``.  Each node keeps a memory for each of them, and the inner strategy gets
            ordinary records.  Records that add up over the rounds, as differences do, need a compressor with a memory; those of
            which only the newest counts need one without, such as ``eden(bits=4)``.  Further records in messages to nodes stay
            dense, because they have no versions; the log names them.
        seed: The seed of compressors that draw random numbers, at least 0.
        checkpoint: A file that gets the whole state before the first message of every `checkpoint_every`-th version leaves,
            the first version included.
        checkpoint_every: At least 1.
        order: Gives the rank of a node id; updates are summed in that order.  Flower draws new ids in each simulation, so a
            simulation that must be repeatable needs another order than that of the ids.
        on_round: Called with a `Round` when a round is over, evaluation included: before the next round begins, and before
            `start` returns.  An exception ends `start`, as one of `evaluate_fn` does; it may stop a run early on purpose.
            A run that resumes from a checkpoint calls it again for the rounds after that checkpoint.

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
        records: Mapping[str, Compressor] | None = None,
        seed: int = 0,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        order: Callable[[int], int] = int,
        on_round: OnRound | None = None,
    ) -> None:
        if isinstance(inner, Strategy) and any(
            isinstance(each, CompressedStrategy) for _, each in nested_strategies(inner)
        ):
            raise ValueError("the inner strategy is or holds a CompressedStrategy already; wrap the plain one")
        check_int("checkpoint_every", checkpoint_every, 1, 2**63 - 1)
        check_int("seed", seed, 0, 2**64 - 1)
        self.inner = inner
        self.uplink = uplink if uplink is not None else auto()
        self.downlink = downlink if downlink is not None else auto()
        check_links(inner, self.uplink, self.downlink)
        self._links = LinkCompressors(inner)
        self.local = (local,) if isinstance(local, str) else tuple(local)
        self.tied = tuple(group if isinstance(group, str) else tuple(group) for group in tied)
        self.seed, self.order, self.ledger, self.round = seed, order, Ledger(), 0
        self._checkpoint = (Path(checkpoint), checkpoint_every) if checkpoint is not None else None
        self._hook = RoundHook(on_round)
        self._settings = scalars_of(inner)
        self._offset = 0  # the rounds before the current start of Flower's
        self._participation, self._random = Participation(), IsolatedRandom()
        self._dense_records, self._further_records = DenseRecords(), FurtherRecords(records)
        self._max_norm: float | None = None  # of an update of this round
        self._model: PublishedModel | None = None

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
    def version(self) -> int:
        """The number of the published version."""
        return self.publisher.replica.version

    @property
    def nodes(self) -> dict[int, NodeState]:
        """Node id -> state of each node that was ever asked: its version, when it last answered, its traffic."""
        return self._participation.states(self._model.publisher.nodes if self._model else NodeRegistry(), self.ledger)

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
        model then.  A model without floating tensors, such as XGBoost's bytes, travels as it is.

        Raises `ValueError` if the arrays are of another model, or if they cannot be published.
        """
        steps: Strategy = self
        offset = self.round  # each start of Flower's counts from 1
        if self._model is None and not self.local and is_incompressible(initial_arrays):
            self._check_uncompressed(initial_arrays)
            steps = UncompressedStrategy(self.inner, self.ledger, self._participation, self._hook, offset)
        else:
            grid = FramesOnlyGrid(grid, type(self.inner).__name__)
            initial_arrays = self._begin(initial_arrays, num_rounds)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(offset + number, arrays) if evaluate_fn is not None else None
            self._hook.add(offset + number, server=metrics)
            return metrics

        self._offset = offset
        try:
            result = start_rounds(
                self.inner,
                steps,
                grid,
                initial_arrays,
                num_rounds=num_rounds,
                timeout=timeout,
                train_config=train_config,
                evaluate_config=evaluate_config,
                evaluate_fn=evaluate if evaluate_fn is not None else None,
            )
            self._hook.end(self.ledger)
            log_totals(self.ledger, self._dense_records.total_bytes if steps is self else self.ledger.sent_bytes)
        finally:
            self._offset = 0
            self._hook.cancel()
        if steps is not self:
            self.round = offset + num_rounds
        elif not overrides_start(self.inner):  # such a start may return the best model instead
            result.arrays = self.arrays
        renumber(result, offset)
        return result

    def _check_uncompressed(self, arrays: ArrayRecord) -> None:
        """Log that `arrays` are not compressed; raise `ValueError` for arguments that need a compressed model."""
        if self._checkpoint is not None:
            raise ValueError("a model without floating tensors has no checkpoint; leave out the argument checkpoint")
        if self._further_records.compressors:
            raise ValueError("a model without floating tensors is not compressed; leave out the argument records")
        dtypes = ", ".join(sorted({array.dtype for array in arrays.values()}))
        log(INFO, "fedcomp: the model holds %s alone, which is not compressed: it travels as it is", dtypes)

    def _begin(self, arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Publish `arrays`, or continue from the published model; return that, with which `num_rounds` rounds begin."""
        if self._model is None:
            self._model = PublishedModel.begin(arrays, self.local, self.tied)
        elif arrays is not self._model.public:
            self._model.check_layout(arrays, self.local, self.tied)
            log(INFO, "fedcomp: continues from version %d; the initial arrays are not used", self.version)
        self._links.num_rounds = self.round + num_rounds
        self._random.hold()
        if self._checkpoint is not None and self.round == 0:
            self.save(self._checkpoint[0])  # a server that restarts before the first round has ended is still the same
        return self.arrays

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages, each with the frames that its node needs.

        Raises `ValueError` if one of Flower's strategies of differential privacy wraps this one.
        """
        if server_round == 1:
            check_order(self)
        self._hook.end(self.ledger)  # the round before
        messages = self._configure(self.inner.configure_train, Link.TRAIN_MESSAGE, server_round, arrays, config, grid)
        self._max_norm = sent_clipping_norm(server_round, messages)
        return messages

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """As `configure_train`."""
        return self._configure(self.inner.configure_evaluate, Link.EVALUATE_MESSAGE, server_round, arrays, config, grid)

    def _configure(
        self, configure: Configure, link: Link, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        if self._model is None:
            self._model = PublishedModel.begin(arrays, self.local, self.tied)
        self._model.check(arrays)
        server_round += self._offset
        with self._random.used():
            messages = list(configure(server_round, self._model.inner, config, RngPreservingGrid(grid)))
        nodes = [message.metadata.dst_node_id for message in messages]
        self._participation.ask(nodes)
        if link is Link.TRAIN_MESSAGE:
            n = self.publisher.replica.layout.n
            self._links.begin_round(self.uplink, self.downlink, server_round, n, nodes, RngPreservingGrid(grid))
            uplink = self._links.uplink
        else:
            self._links.reach(nodes)
            uplink = evaluation_uplink(self._links.uplink)
        seed = derive_seed(self.seed, server_round)
        for message in messages:
            amounts = self._model.pack(message, str(uplink), seed, type(self.inner).__name__)
            if link is Link.TRAIN_MESSAGE:
                amounts["downlink_bytes"] += self._further_records.ask(message)
            self.ledger.add(server_round, message.metadata.dst_node_id, **amounts)
            self._dense_records.add(link, dense_sizes(message.content))
        return messages

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next published model and the inner strategy's metrics."""
        server_round += self._offset
        valid, failed = self._validate(server_round, replies, train=True)
        with self._random.used():
            change, metrics = aggregate(self.inner, server_round, valid, failed, self.publisher)
        if change is not None:
            start_s = time.perf_counter()
            self.model.publish(change, self._links.downlink, derive_seed(self.seed, server_round, 1), self.inner)
            self._links.end_round(valid, change[0], self.publisher.memory)
            self.ledger.add(server_round, SERVER_NODE, encode_seconds=time.perf_counter() - start_s)
            # Acknowledge only now: an update that went into no model goes back to its node.
            for reply in valid:
                self.publisher.acknowledge(reply.node, reply.reply, summed=self._links.uplink.memory.incremental)
        self.round = server_round
        if self._checkpoint is not None and server_round % self._checkpoint[1] == 0:
            self.save(self._checkpoint[0])
        self._dense_records.log(self.ledger.of_round(server_round), server_round)
        log_ratio(server_round, self.ledger, self._links.uplink)
        self._hook.begin(server_round, metrics)
        return (None if change is None else self.model.public), metrics

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        valid, failed = self._validate(server_round, replies, train=False)
        self._dense_records.log(self.ledger.of_round(server_round), server_round)
        with self._random.used():
            metrics = self.inner.aggregate_evaluate(server_round, [*(reply.message for reply in valid), *failed])
        self._hook.add(server_round, evaluate=metrics)
        return metrics

    def _validate(
        self, server_round: int, replies: Messages, *, train: bool
    ) -> tuple[list[ValidatedReply], list[Message]]:
        replies = list(replies)
        asked = self._participation.take(server_round, replies, self.ledger)
        check_mod(server_round, replies, asked, any_frame=bool(self.ledger.uplink_bytes), train=train)
        weight_key = getattr(aggregating(self.inner), "weighted_by_key", None)
        model_size = dense_size(self.model.inner)
        validator = ReplyValidator(
            self.publisher,
            self.ledger,
            server_round,
            model_size,
            weight_key,
            self.order,
            self._dense_records,
            self._further_records,
            self._max_norm,
        )
        return validator.validate(replies, train=train)

    def save(self, path: str | Path) -> None:
        """Write everything that the server must not lose into one file, atomically."""
        self._random.hold()
        state = Checkpoint(
            self.round, self.publisher, self.ledger, self.model.local, self._random.state, self._links.state()
        )
        state.save(path, self.inner, self._settings)

    def load(self, path: str | Path) -> None:
        """Return to the state that `save` wrote, the inner strategy's included; raise `FedcompError` for a damaged file."""
        saved = Checkpoint.load(path, self.inner)
        if self._model is not None:
            saved.publisher.number = max(saved.publisher.number, self.publisher.number)
        self._model = PublishedModel(saved.publisher, saved.local)
        self._model.lead(self.inner)
        self.ledger, self.round = saved.ledger, saved.round
        self._participation = Participation(self.ledger)
        self._random.state = saved.random_state
        self._links.restore(saved.choice, saved.publisher.memory)
