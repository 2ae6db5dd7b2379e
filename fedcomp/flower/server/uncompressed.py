"""A strategy whose model holds nothing to compress, such as XGBoost's trees: messages pass as they are, and are counted."""

from collections.abc import Callable, Iterable
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcomp.flower import records
from fedcomp.flower._compat import log
from fedcomp.flower.records import Messages
from fedcomp.flower.server.links import log_totals
from fedcomp.flower.server.own_start import start_rounds
from fedcomp.flower.server.participation import Participation
from fedcomp.flower.server.round_hook import RoundHook
from fedcomp.sync import Ledger

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
INTEGERS = ("int", "uint", "bool")
"""How the names of dtypes begin that are never compressed."""


def is_incompressible(arrays: ArrayRecord) -> bool:
    """Return whether `arrays` holds integers and bools alone, which always travel as they are."""
    return bool(arrays) and all(array.dtype.startswith(INTEGERS) for array in arrays.values())


class UncompressedStrategy(Strategy):
    """`inner` as it is; its traffic goes to the `ledger`, its nodes to `participation`, and its rounds to the `hook`."""

    def __init__(self, inner: Strategy, ledger: Ledger, participation: Participation, hook: RoundHook) -> None:
        self._inner, self._ledger, self._participation, self._hook = inner, ledger, participation, hook

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
        """Run the rounds as the inner strategy's `start` does, and say in the log that nothing is compressed."""
        dtypes = ", ".join(sorted({array.dtype for array in initial_arrays.values()}))
        log(INFO, "fedcomp: the model holds %s alone, which is not compressed: it travels as it is", dtypes)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(number, arrays) if evaluate_fn is not None else None
            self._hook.add(number, server=metrics)
            return metrics

        try:
            result = start_rounds(
                self._inner,
                self,
                grid,
                initial_arrays,
                num_rounds=num_rounds,
                timeout=timeout,
                train_config=train_config,
                evaluate_config=evaluate_config,
                evaluate_fn=evaluate if evaluate_fn is not None else None,
            )
            self._hook.end(self._ledger)
            log_totals(self._ledger, self._ledger.sent_bytes)
        finally:
            self._hook.cancel()
        return result

    def summary(self) -> None:
        """Log the inner strategy's summary."""
        self._inner.summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages."""
        self._hook.end(self._ledger)  # the round before
        return self._sent(server_round, self._inner.configure_train(server_round, arrays, config, grid))

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the inner strategy's messages."""
        return self._sent(server_round, self._inner.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the inner strategy's model and metrics."""
        arrays, metrics = self._inner.aggregate_train(server_round, self._received(server_round, replies))
        self._hook.begin(server_round, metrics)
        return arrays, metrics

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        """Return the inner strategy's metrics."""
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
