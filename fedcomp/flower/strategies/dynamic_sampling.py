"""Dynamic sampling: many nodes in the first rounds, when the model is far off, and fewer and fewer later."""

import math
from collections.abc import Iterable, Mapping
from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.flower._compat import log
from fedcomp.flower.strategies.state import StatefulStrategy, StateValue, StrategyState

MIN_TRAIN_NODES = 2
"""Nodes of a late round; the paper's."""


class DynamicSampling(Strategy, StatefulStrategy):
    """`inner`, training the share C exp(-beta t) of the N connected nodes in round t = 0, 1, ...; C is its `fraction_train`.

    Ji, Jiang, Walid and Li, IEEE Intelligent Systems 37(2), 2022 (arXiv 2003.09603): max(2, ceil(C exp(-beta t) N)) nodes,
    or the `min_train_nodes` of `inner`, where those are more.  Evaluation is as `inner` has it.  It holds no state: the round
    comes with each call, so a resumed run goes on where it was.
    """

    def __init__(self, inner: FedAvg, *, beta: float) -> None:
        """Wrap `inner`, Flower's FedAvg or what builds on it; raise `ValueError` for what cannot be."""
        if not isinstance(inner, FedAvg):
            raise ValueError(f"the inner strategy is {inner!r}; one with a fraction_train, as FedAvg, is needed")
        if not 0 <= beta < math.inf:
            raise ValueError(f"beta is {beta}; a finite number from 0 up is needed")
        self.inner = inner
        self.beta = beta

    def state(self) -> StrategyState:
        """Return nothing: the round comes with each call.  The state of `inner` is its own."""
        return {}

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned."""

    def sample_size(self, server_round: int, num_nodes: int) -> int:
        """Return how many of `num_nodes` train in a round, the first being 1."""
        share = self.inner.fraction_train * math.exp(-self.beta * (server_round - 1))
        # 0.07 * 100 is above 7 in float64, by less than this
        size = max(MIN_TRAIN_NODES, math.ceil(share * num_nodes - 1e-9))
        return max(min(size, num_nodes), self.inner.min_train_nodes)

    def summary(self) -> None:
        """Log the decay, then the inner strategy's summary."""
        log(INFO, "\t├──> Dynamic sampling: beta %g", self.beta)
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages, to this round's number of nodes."""
        inner = self.inner
        settings = inner.fraction_train, inner.min_train_nodes
        if inner.fraction_train:
            num_nodes = max(len(list(grid.get_node_ids())), inner.min_available_nodes)  # `inner` waits for those
            size = self.sample_size(server_round, num_nodes)
            # int(fraction * N) is one less at times; the minimum makes it exact
            inner.fraction_train, inner.min_train_nodes = size / num_nodes, size
        try:
            return list(inner.configure_train(server_round, arrays, config, grid))
        finally:
            inner.fraction_train, inner.min_train_nodes = settings

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return what the inner strategy makes of the replies."""
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's messages."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return what the inner strategy makes of the replies."""
        return self.inner.aggregate_evaluate(server_round, replies)


def aggregating(strategy: Strategy) -> Strategy:
    """Return the strategy that aggregates: what `DynamicSampling` wraps, or `strategy` itself."""
    return strategy.inner if isinstance(strategy, DynamicSampling) else strategy
