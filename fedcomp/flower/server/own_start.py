"""Runs rounds by Flower's `start`, or by that of a strategy of its own, as advanced-pytorch has to keep the best model."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ArrayRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcomp.flower.compat import GridWrapper, overrides_start, with_steps_of
from fedcomp.flower.records import Contents
from fedcomp.flower.server.rounds.round_hook import RoundHook

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
"""`evaluate_fn` of `Strategy.start`: the round and the model -> metrics."""


def start_rounds(
    inner: Strategy,
    outer: Strategy,
    grid: Grid,
    arrays: ArrayRecord,
    offset: int,
    hook: RoundHook,
    evaluate_fn: Evaluate | None,
    **settings: Any,
) -> Result:
    """Return the result of the `start` of `inner`, whose steps are those of `outer`; all else is that of `inner`.

    Flower counts the rounds of each start from 1: `evaluate_fn`, `hook` and the result get numbers that are `offset` larger.
    `settings` are the further arguments of `Strategy.start`; those that are None are left out.  Raises `ValueError` if the
    `start` of `inner` does not take them.
    """

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        metrics = evaluate_fn(offset + number, arrays) if evaluate_fn is not None else None
        hook.add(offset + number, server=metrics)
        return metrics

    settings["evaluate_fn"] = evaluate if evaluate_fn is not None else None
    result = _start(inner, outer, grid, arrays, **settings)
    if isinstance(result, Result):  # a user's own `start` may return anything
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {offset + number: metrics for number, metrics in getattr(result, name).items()})
    return result


def _start(inner: Strategy, outer: Strategy, grid: Grid, arrays: ArrayRecord, **settings: Any) -> Result:
    if not overrides_start(inner):
        return Strategy.start(outer, grid, arrays, **settings)
    double = with_steps_of(outer, inner)
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        inspect.signature(double.start).bind(grid, arrays, **given)
    except TypeError as error:
        raise ValueError(
            f"{type(inner).__name__}.start cannot be called: {error}; the arguments of Strategy.start are needed"
        ) from None
    return double.start(grid, arrays, **given)


class FramesOnlyGrid(GridWrapper):
    """Sends no training or evaluation message that the protocol cannot follow; `sender` names the strategy in the error.

    One with arrays in place of a frame did not come from the steps.  Of two at a time, a node answers the newest alone.
    """

    def __init__(self, grid: Grid, sender: str) -> None:
        super().__init__(grid)
        self._sender = sender

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids.  Raises `ValueError` for those that no node should get."""
        return super().push_messages(self._checked(messages))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages; return the replies.  Raises `ValueError` for those that no node should get."""
        return super().send_and_receive(self._checked(messages), timeout=timeout)

    def _checked(self, messages: Iterable[Message]) -> list[Message]:
        messages, nodes = list(messages), set[int]()
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type.split(".")[0]
            if kind not in (MessageType.TRAIN, MessageType.EVALUATE):
                continue
            contents = Contents.of(message.content)
            if contents.frames:
                if node in nodes:
                    raise ValueError(
                        f"{self._sender} sends node {node} two messages at a time; it answers the newest one alone, so send "
                        "the second after the reply to the first"
                    )
                nodes.add(node)
            elif any(contents.dense.values()):
                raise ValueError(
                    f"{self._sender} sends a model that is not compressed to node {node}; it may send only what its own "
                    "configure_train and configure_evaluate return, and a step may send nothing itself"
                )
        return messages
