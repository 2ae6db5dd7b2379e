"""Any Flower strategy, with compressed traffic both ways."""

import random
import time
from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Result, Strategy
from flwr.serverapp.strategy.strategy_utils import validate_message_reply_consistency
from flwr.supercore import log

from fedcomp.compressor import Compressor
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.flower import envelope, uplink
from fedcomp.flower.checkpoint import Checkpoint
from fedcomp.flower.downlink import Downlink
from fedcomp.flower.history import History
from fedcomp.flower.ledger import SERVER, Ledger
from fedcomp.flower.roster import UNKNOWN, Roster
from fedcomp.methods import stc
from fedcomp.replica import start
from fedcomp.wire.codecs import codec_id
from fedcomp.wire.frame import Kind, parse_one
from fedcomp.wire.instruction import Instruction, receipt
from fedcomp.wire.layout import layout_of

AVERAGING = {kind.aggregate_train for kind in (FedAvg, FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi)}
"""The `aggregate_train` of strategies that look at nothing but the weighted mean of the replies' arrays."""
NEAR_ONE = 1.5
"""A ratio below this is no compression to speak of."""


class CompressedStrategy(Strategy):
    """`inner`, sending frames instead of arrays.

    `inner` picks the nodes and their settings, and gets ordinary replies: FedAvg, FedAdam, FedProx, Krum and users' own
    strategies work unchanged.  Where it only averages, updates are summed sparsely and it gets one merged reply.  What it
    makes of them is compressed once, by `downlink`, and published: evaluation and clients hold the published model.

    `uplink` and `downlink` are compressors; `local` are name patterns of tensors that stay on the nodes; `seed` feeds
    compressors that draw random numbers; with `checkpoint`, the whole state is written to that file before the first
    message of every `checkpoint_every`-th version leaves.
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
    ) -> None:
        """Wrap `inner`; the compressors default to ``stc()``."""
        if isinstance(inner, CompressedStrategy):
            raise ValueError("the inner strategy is a CompressedStrategy already; wrap the plain one")
        if checkpoint_every < 1:
            raise ValueError(f"checkpoint_every is {checkpoint_every}; it is at least 1")
        self.inner = inner
        self.uplink = uplink if uplink is not None else stc()
        self.downlink = downlink if downlink is not None else stc()
        for compressor in (self.uplink, self.downlink):
            codec_id(compressor.entropy)  # raises where it cannot travel
        self.local = tuple(local)
        self.seed = seed
        self.ledger = Ledger()
        self.round = 0
        self._checkpoint = Path(checkpoint) if checkpoint is not None else None
        self._checkpoint_every = checkpoint_every
        self._offset = 0
        self._roster = Roster()
        # Numbers grow across restarts too: a node tells an old instruction from a new one by them.
        self._number = time.time_ns() // 1000
        self._log: Downlink | None = None
        self._kept_local: dict[str, Any] = {}
        self._arrays = ArrayRecord()
        self._inner_arrays = ArrayRecord()

    @property
    def version(self) -> int:
        """The published version."""
        return int(self._published().version)

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
        """Run `num_rounds` rounds as Flower's `Strategy.start` does; after `load`, go on from the loaded round."""
        if self._log is None:
            self._begin(initial_arrays)
        elif initial_arrays is not self._arrays:
            log(INFO, "fedcomp: goes on from version %d; the initial arrays are not used", self.version)
        self._offset = offset = self.round

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
        messages = self.inner.configure_train(server_round, self._inner_arrays, config, grid)
        return [self._instruct(message, server_round) for message in messages]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages, each with the frames that its node needs."""
        self._hold(arrays)
        server_round += self._offset
        messages = self.inner.configure_evaluate(server_round, self._inner_arrays, config, grid)
        return [self._instruct(message, server_round) for message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next published model and the inner strategy's metrics."""
        server_round += self._offset
        plain, updates = self._take(server_round, replies)
        if updates and type(self.inner).aggregate_train in AVERAGING:
            arrays, metrics = self._aggregate_mean(server_round, plain, updates)
        else:
            published = self._published()
            for message in plain:
                if message.metadata.src_node_id in updates and message.has_content():
                    key, update = updates[message.metadata.src_node_id]
                    message.content[key] = envelope.to_record(uplink.arrays(update, published))
            arrays, metrics = self.inner.aggregate_train(server_round, plain)
        if arrays is not None:
            self._publish(server_round, arrays)
        self.round = server_round
        if self._checkpoint is not None and server_round % self._checkpoint_every == 0:
            self.save(self._checkpoint)
        self._report(server_round)
        return (None if arrays is None else self._arrays), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        plain, _ = self._take(server_round, replies)
        return self.inner.aggregate_evaluate(server_round, plain)

    def save(self, path: str | Path) -> None:
        """Write everything that the server must not lose into one file, atomically."""
        published, memory = self._published(), cast(Downlink, self._log)
        Checkpoint(
            round=self.round,
            replica=published,
            memory=memory.memory,
            history=tuple(memory.history.frames()),
            roster=self._roster,
            ledger=self.ledger,
            local=self._kept_local,
            number=self._number,
            random_state=random.getstate(),
        ).save(path, self.inner)

    def load(self, path: str | Path) -> None:
        """Go back to what `save` wrote, the inner strategy's state included; raise `FedcompError` for a damaged file."""
        saved = Checkpoint.load(path, self.inner)
        history = History(saved.replica.key_frame().size)
        for frame in saved.history:
            history.append(frame)
        fresh = self.downlink.init(saved.replica.layout.n)
        self._log = Downlink(self.downlink, saved.replica, fresh | saved.memory, history)
        self._roster, self.ledger, self.round = saved.roster, saved.ledger, saved.round
        self._kept_local = saved.local
        self._number = max(self._number, saved.number + 1)
        random.setstate(saved.random_state)
        self._renew()

    def _begin(self, arrays: ArrayRecord) -> None:
        plain = envelope.to_arrays(arrays)
        layout = layout_of(plain, self.local)
        self._kept_local = {tensor.name: plain[tensor.name] for tensor in layout.tensors if tensor.policy == "local"}
        self._log = Downlink.begin(self.downlink, start(layout, plain))
        self._renew()

    def _published(self) -> Any:
        if self._log is None:
            raise RuntimeError("nothing is published yet; start() or load() comes first")
        return self._log.published

    def _renew(self) -> None:
        """Make the records of the published model, as the inner strategy and as everybody else sees it."""
        shared = self._published().arrays()
        self._inner_arrays = envelope.to_record(shared)
        if isinstance(self.inner, FedAvgM) and self.inner.current_arrays is not None:
            # It goes on from the model that it made itself; the nodes, and the next update, start from the published one.
            self.inner.current_arrays = self._inner_arrays
        names = [tensor.name for tensor in self._published().layout.tensors]
        self._arrays = self._inner_arrays
        if self._kept_local:
            self._arrays = envelope.to_record({name: (shared | self._kept_local)[name] for name in names})

    def _hold(self, arrays: ArrayRecord) -> None:
        """Refuse arrays other than the published ones: nodes would train from a model that they were never sent."""
        if self._log is None:
            self._begin(arrays)
        elif arrays is not self._arrays:
            given = start(self._published().layout, envelope.to_arrays(arrays))
            if given.fingerprint != self._published().fingerprint:
                raise ValueError("the arrays are not the published model; pass on what aggregate_train returned")

    def _instruct(self, message: Message, server_round: int) -> Message:
        """Put the frames that the node needs in the place of the dense arrays."""
        node = message.metadata.dst_node_id
        standing, published = self._roster[node], self._published()
        keys = [key for key, record in message.content.array_records.items() if self._is_published(record)]
        if len(keys) != 1:
            raise ValueError(
                f"{type(self.inner).__name__} sends node {node} {len(keys)} records of the published model; exactly one "
                "can be compressed"
            )
        self._number += 1
        standing.number = self._number
        route = cast(Downlink, self._log).route(standing)
        seed = int(np.random.SeedSequence([self.seed, server_round]).generate_state(1, np.uint64)[0])
        newest = (published.version, published.fingerprint)
        data = Instruction(self._number, standing.taken, *newest, seed, str(self.uplink), route.frames).to_bytes()
        self.ledger.add(
            server_round,
            node,
            downlink_bytes=len(data) + self._others(message.content, keys[0]),
            catch_up_bytes=route.catch_up_bytes,
            dense_downlink_bytes=sum(envelope.dense_size(record) for record in message.content.array_records.values()),
        )
        # The inner strategy may have given several messages one content.
        content = RecordDict(dict(message.content.items()))
        content[keys[0]] = envelope.seal(data)
        message.content = content
        return message

    def _is_published(self, record: ArrayRecord) -> bool:
        mine = self._inner_arrays
        return record is mine or (
            record.keys() == mine.keys() and all(record[name].data == mine[name].data for name in mine)
        )

    @staticmethod
    def _others(content: RecordDict, key: str) -> int:
        """Return the bytes of the records beside `key`, which travel as they are."""
        return sum(envelope.dense_size(record) for name, record in content.array_records.items() if name != key)

    def _take(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[list[Message], dict[int, tuple[str, uplink.Update]]]:
        """Return replies without frames, and node -> (key of its arrays, update); what is refused becomes an error."""
        plain: list[Message] = []
        updates: dict[int, tuple[str, uplink.Update]] = {}
        for message in replies:
            if message.has_error():
                plain.append(message)
                continue
            node = message.metadata.src_node_id
            try:
                found = envelope.sealed(message.content)
                if found is None:
                    raise CorruptError("the reply holds no frame; is CompressionMod in the ClientApp's mods?")
                update = self._accept(server_round, node, found, message.content)
            except FedcompError as error:
                log(WARNING, "fedcomp: the reply of node %d is dropped: %s", node, error)
                self.ledger.add(server_round, node, refused=1)
                reason = f"{type(error).__name__}: {error}"
                plain.append(make_message(message.metadata, error=Error(ErrorCode.MOD_FAILED_PRECONDITION, reason)))
                continue
            content = RecordDict({key: record for key, record in message.content.items() if key != found[0]})
            if update is not None:
                updates[node] = (found[0], update)
            message.content = content
            plain.append(message)
        return plain, updates

    def _accept(
        self, server_round: int, node: int, found: tuple[str, bytes], content: RecordDict
    ) -> uplink.Update | None:
        key, data = found
        others = self._others(content, key)
        self.ledger.add(server_round, node, uplink_bytes=len(data) + others)
        begin = time.perf_counter()
        frame = parse_one(data)
        standing = self._roster[node]
        uplink.check(frame, standing, self._published())
        if frame.kind is Kind.LOST:
            standing.version = UNKNOWN
            raise CorruptError("the node cannot follow; it gets a key frame next")
        update = None
        if frame.kind is Kind.UPDATE:
            update = uplink.decode(frame, self._published())
            self._check_weight(content)
            standing.taken = receipt(frame.after, data)
            self.ledger.add(
                server_round,
                node,
                dense_uplink_bytes=envelope.dense_size(self._inner_arrays) + others,
                encode_seconds=update.encode_seconds,
                decode_seconds=update.decode_seconds + time.perf_counter() - begin,
            )
        standing.version, standing.fingerprint = frame.version, frame.before
        return update

    def _check_weight(self, content: RecordDict) -> None:
        """Refuse an update whose weight would spoil the mean."""
        key = getattr(self.inner, "weighted_by_key", None)
        for record in content.metric_records.values():
            weight = record.get(key, 1) if key else 1
            if not isinstance(weight, int | float) or not np.isfinite(weight) or weight < 0:
                raise CorruptError(f"its weight {key!r} is {weight}; a finite number of at least 0 is needed")

    def _aggregate_mean(
        self, server_round: int, plain: list[Message], updates: dict[int, tuple[str, uplink.Update]]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the inner strategy one merged reply, the weighted mean; its metrics see every reply."""
        inner = cast(FedAvg, self.inner)
        answered = sorted(
            (message for message in plain if message.has_content() and message.metadata.src_node_id in updates),
            key=lambda message: message.metadata.src_node_id,
        )
        contents = [message.content for message in answered]
        validate_message_reply_consistency(contents, inner.weighted_by_key, check_arrayrecord=False)
        weights = [float(cast(float, next(iter(c.metric_records.values()))[inner.weighted_by_key])) for c in contents]
        if not sum(weights):
            log(WARNING, "fedcomp: all weights %r are 0; nothing is aggregated", inner.weighted_by_key)
            return None, None
        nodes = [message.metadata.src_node_id for message in answered]
        weighed = {node: (updates[node][1], weight) for node, weight in zip(nodes, weights, strict=True)}
        metric_key, metrics = next(iter(contents[0].metric_records.items()))
        merged = RecordDict(
            {
                updates[nodes[0]][0]: envelope.to_record(uplink.mean(weighed, self._published())),
                metric_key: MetricRecord(dict(metrics) | {inner.weighted_by_key: sum(weights)}),
            }
        )
        failed = [message for message in plain if message.has_error()]
        aggregate_metrics = inner.train_metrics_aggr_fn
        inner.train_metrics_aggr_fn = lambda _, key: aggregate_metrics(contents, key)
        try:
            log(INFO, "fedcomp: %d updates are merged into one result", len(answered))
            return inner.aggregate_train(server_round, [make_message(answered[0].metadata, merged), *failed])
        finally:
            inner.train_metrics_aggr_fn = aggregate_metrics

    def _publish(self, server_round: int, arrays: ArrayRecord) -> None:
        begin = time.perf_counter()
        seed = int(np.random.SeedSequence([self.seed, server_round, 1]).generate_state(1, np.uint64)[0])
        cast(Downlink, self._log).publish(envelope.to_arrays(arrays), seed)
        self.ledger.add(server_round, SERVER, encode_seconds=time.perf_counter() - begin)
        self._renew()

    def _report(self, server_round: int) -> None:
        """Log the first round's ratio, and warn where nothing is gained."""
        here = self.ledger.by_round().get(server_round)
        if here is None or not here.uplink_bytes or server_round != self._offset + 1:
            return
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
        if ratio < NEAR_ONE and self.uplink.name != "dense":
            log(WARNING, "fedcomp: uplink %s hardly compresses this model: ratio %.2f", self.uplink, ratio)
