"""A strategy with a `start` of its own that keeps the best model, as in advanced-pytorch."""

from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from tests.adoption import batch_norm
from tests.adoption.quickstart import Quickstart
from tests.adoption.samples import accuracy


class KeepingTheBest(FedAvg):
    """FedAvg whose `start` evaluates each model, and returns the best one."""

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, *args: Any, **kwargs: Any) -> Result:
        """Run the rounds; the arrays of the result are those of the best round."""
        best = (-1.0, ArrayRecord())

        def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:
            nonlocal best
            score = accuracy(batch_norm.loaded(arrays))
            best = max(best, (score, arrays), key=lambda pair: pair[0])
            return MetricRecord({"accuracy": score})

        result = super().start(grid, initial_arrays, num_rounds, *args, **(kwargs | {"evaluate_fn": evaluate_fn}))
        result.arrays = best[1]
        return result


QUICKSTART = Quickstart(
    initial=batch_norm.QUICKSTART.initial,
    train=batch_norm.train,
    score=batch_norm.QUICKSTART.score,
    strategy=lambda: KeepingTheBest(fraction_evaluate=0.0),
    rounds=16,
)
