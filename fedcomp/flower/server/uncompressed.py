"""A strategy whose model holds nothing to compress, such as XGBoost's trees: messages pass as they are, and are counted."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedcomp.flower import records
from fedcomp.flower.records import Messages
from fedcomp.flower.server.participation import Participation
from fedcomp.flower.server.round_hook import RoundHook
from fedcomp.sync import Ledger

INTEGERS = ("int", "uint", "bool")
"""How the names of dtypes begin that are never compressed."""


def is_incompressible(arrays: ArrayRecord) -> bool:
    """Return whether `arrays` holds integers and bools alone, which always travel as they are."""
    return bool(arrays) and all(array.dtype.startswith(INTEGERS) for array in arrays.values())


class UncompressedStrategy(Strategy):
    """`inner` as it is; its traffic goes to the `ledger`, its nodes to `participation`, and its rounds to the `hook`."""

    def __init__(
        self, inner: Strategy, ledger: Ledger, participation: Participation, hook: RoundHook, offset: int
    ) -> None:
        """Count `offset` rounds before the first one, which Flower numbers 1."""
        self._inner, self._ledger, self._participation, self._hook = inner, ledger, participation, hook
        self._offset = offset

    def summary(self) -> None:
        """Log the inner strategy's summary."""
        self._inner.summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages."""
        self._hook.end(self._ledger)  # the round before
        server_round += self._offset
        return self._sent(server_round, self._inner.configure_train(server_round, arrays, config, grid))

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages."""
        server_round += self._offset
        return self._sent(server_round, self._inner.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the inner strategy's model and metrics."""
        server_round += self._offset
        arrays, metrics = self._inner.aggregate_train(server_round, self._received(server_round, replies))
        self._hook.begin(server_round, metrics)
        return arrays, metrics

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
        server_round += self._offset
        metrics = self._inner.aggregate_evaluate(server_round, self._received(server_round, replies))
        self._hook.add(server_round, evaluate=metrics)
        return metrics

    def _sent(self, server_round: int, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        self._participation.ask(message.metadata.dst_node_id for message in messages)
        for message in messages:
            size = sum(records.dense_sizes(message.content).values())
            node = message.metadata.dst_node_id
            self._ledger.add(server_round, node, downlink_bytes=size, dense_downlink_bytes=size)
        return messages

    def _received(self, server_round: int, replies: Iterable[Message]) -> list[Message]:
        replies = list(replies)
        self._participation.take(server_round, replies, self._ledger)
        for reply in replies:
            if reply.has_content():
                size = sum(records.dense_sizes(reply.content).values())
                node = reply.metadata.src_node_id
                self._ledger.add(server_round, node, uplink_bytes=size, dense_uplink_bytes=size)
        return replies
