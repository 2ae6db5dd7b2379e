"""Dynamic sampling: many nodes train in the first rounds, while the model is far from its optimum, and fewer later."""

import math
from logging import INFO
from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.core import ceil_fraction, check_range
from fedcomp.flower.compat import log
from fedcomp.flower.records import Messages
from fedcomp.flower.strategies.state import StatefulStrategy

MIN_TRAIN_NODES = 2
"""Nodes of a late round, as in the paper."""


class DynamicSampling(Strategy, StatefulStrategy):
    """`inner`, with max(2, ceil(C exp(-beta t) N)) of the N connected nodes in round t = 0, 1, ...; C is its `fraction_train`.

    Ji, Jiang, Walid and Li, IEEE Intelligent Systems 37(2), 2022 (arXiv 2003.09603).  If the `min_train_nodes` of `inner`
    is larger, that many nodes train.  Evaluation is that of `inner`.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, inner: FedAvg, *, beta: float) -> None:
        """Wrap `inner`, Flower's FedAvg or a subclass of it.

        Raises `ValueError` if `inner` is no FedAvg, or the decay `beta` is not a finite number from 0.
        """
        if not isinstance(inner, FedAvg):
            raise ValueError(f"the inner strategy is {inner!r}; a FedAvg or a subclass of it is needed")
        check_range("beta", beta, least=0)
        self.inner = inner
        self.beta = float(beta)

    def sample_size(self, server_round: int, num_nodes: int) -> int:
        """Return how many of `num_nodes` train in a round; the first round is 1."""
        fraction = self.inner.fraction_train * math.exp(-self.beta * (server_round - 1))
        size = max(MIN_TRAIN_NODES, ceil_fraction(fraction, num_nodes))
        return max(min(size, num_nodes), self.inner.min_train_nodes)

    def summary(self) -> None:
        """Log the decay, then the summary of `inner`."""
        log(INFO, "\t├──> Dynamic sampling: beta %g", self.beta)
        self.inner.summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the messages of `inner`, to this round's number of nodes."""
        inner = self.inner
        settings = inner.fraction_train, inner.min_train_nodes
        if inner.fraction_train:
            num_nodes = max(len(list(grid.get_node_ids())), inner.min_available_nodes)  # `inner` waits for them
            size = self.sample_size(server_round, num_nodes)
            # FedAvg rounds fraction * N down; the minimum makes the number exact.
            inner.fraction_train, inner.min_train_nodes = size / num_nodes, size
        try:
            return list(inner.configure_train(server_round, arrays, config, grid))
        finally:
            inner.fraction_train, inner.min_train_nodes = settings

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As `inner`."""
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """As `inner`."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        """As `inner`."""
        return self.inner.aggregate_evaluate(server_round, replies)


def aggregating(strategy: Strategy) -> Strategy:
    """Return the strategy that aggregates: the one inside a `DynamicSampling`, or `strategy` itself."""
    return strategy.inner if isinstance(strategy, DynamicSampling) else strategy
