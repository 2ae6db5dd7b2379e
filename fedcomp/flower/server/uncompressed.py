"""A strategy whose model holds nothing to compress, such as XGBoost's trees: messages pass as they are, and are counted."""

from collections.abc import Iterable, Mapping
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedcomp.flower import records
from fedcomp.flower.compat import log
from fedcomp.flower.records import Messages
from fedcomp.flower.server.exchange import Exchange
from fedcomp.flower.server.message_kind import MessageKind
from fedcomp.flower.server.rounds.failed_rounds import FailedRounds
from fedcomp.flower.server.rounds.round_hook import RoundHook

INTEGERS = "iub"
"""The kinds of numpy's dtypes that are never compressed."""


def is_incompressible(arrays: ArrayRecord) -> bool:
    """Return whether `arrays` holds integers and bools alone, which always travel as they are."""
    return bool(arrays) and all(array.dtype.kind in INTEGERS for array in records.to_arrays(arrays).values())


def check_uncompressed(
    arrays: ArrayRecord, checkpoint: object, compressors: Mapping[str, object], mode: object
) -> None:
    """Log that `arrays` are not compressed; raise `ValueError` for arguments that need a compressed model."""
    if checkpoint is not None:
        raise ValueError("a model without floating tensors has no checkpoint; leave out the argument checkpoint")
    if compressors:
        raise ValueError("a model without floating tensors is not compressed; leave out the argument records")
    if mode is not None:
        raise ValueError(f"a model without floating tensors has no versions; leave out the mode {mode}")
    dtypes = ", ".join(sorted({array.dtype for array in arrays.values()}))
    log(INFO, "fedcomp: the model holds %s alone, which is not compressed: it travels as it is", dtypes)


class UncompressedStrategy(Strategy):
    """`inner` as it is; its messages are counted by `exchange`, its rounds go to `hook`, and those that fail to `failed`."""

    def __init__(self, inner: Strategy, exchange: Exchange, hook: RoundHook, failed: FailedRounds, offset: int) -> None:
        """Count `offset` rounds before the first one, which Flower numbers 1."""
        self._inner, self._exchange, self._hook, self._failed, self._offset = inner, exchange, hook, failed, offset

    def summary(self) -> None:
        """Log the inner strategy's summary."""
        self._inner.summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages."""
        self._hook.end(self._exchange.ledger)  # the round before
        self._exchange.round = server_round + self._offset
        messages = self._inner.configure_train(self._exchange.round, arrays, config, grid)
        return self._sent(MessageKind.TRAIN_MESSAGE, messages)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages."""
        self._exchange.round = server_round + self._offset
        messages = self._inner.configure_evaluate(self._exchange.round, arrays, config, grid)
        return self._sent(MessageKind.EVALUATE_MESSAGE, messages)

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the inner strategy's model and metrics."""
        server_round += self._offset
        asked, received = self._received(MessageKind.TRAIN_REPLY, server_round, replies)
        if asked and not any(reply.has_content() for reply in received):
            self._failed.miss(server_round, received)
        arrays, metrics = None, None
        with self._failed.guard(server_round, "training", counts=True):
            arrays, metrics = self._inner.aggregate_train(server_round, received)
        if arrays is not None:
            self._failed.succeed()
        self._hook.begin(server_round, metrics)
        return arrays, metrics

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        (_, received), metrics = self._received(MessageKind.EVALUATE_REPLY, server_round, replies), None
        with self._failed.guard(server_round, "evaluation", counts=False):
            metrics = self._inner.aggregate_evaluate(server_round, received)
        self._hook.add(server_round, evaluate=metrics)
        return metrics

    def _sent(self, kind: MessageKind, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        self._exchange.participation.ask(message.metadata.dst_node_id for message in messages)
        for message in messages:
            self._exchange.count_dense(kind, message)
        return messages

    def _received(self, kind: MessageKind, server_round: int, replies: Iterable[Message]) -> tuple[int, list[Message]]:
        """Count the replies; return how many nodes were asked, and the replies."""
        replies = list(replies)
        asked = self._exchange.participation.take(server_round, replies, self._exchange.ledger)
        for reply in replies:
            self._exchange.count_dense(kind, reply)
        return asked, replies
