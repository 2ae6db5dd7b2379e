"""Round numbers of a run that Flower starts several times: each start of Flower's counts from 1."""

from collections.abc import Callable

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


def shift_evaluate(evaluate: Evaluate | None, offset: int) -> Evaluate | None:
    """Return `evaluate` for a start that continues after round `offset`."""
    if evaluate is None:
        return None
    return lambda server_round, arrays: evaluate(offset + server_round, arrays)


def shift_result(result: Result, offset: int) -> None:
    """Number the metrics in `result` from round `offset` on."""
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        setattr(result, name, {offset + number: metrics for number, metrics in getattr(result, name).items()})
