"""The server's half of EF21: nodes send what their estimates change by, and the server keeps the mean estimate."""

import math
from collections.abc import Iterable, Mapping
from logging import INFO
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedcomp.flower._compat import log
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums
from fedcomp.flower.strategies.state import StateValue, StrategyState, count_in, tensors_in


class EF21(ServerOptimizer):
    """model = published + eta g, where g follows the mean of all nodes' estimates by the increments that they send.

    g is the sum of all increments over the number of connected nodes: a node that is absent has an increment of 0, and its
    estimate still counts.  So the mean is over nodes, and no weights go into it.  Richtárik, Sokolov and Fatkhullin,
    NeurIPS 2021, algorithm 2; with momentum on the nodes' side, Fatkhullin, Tyurin and Richtárik, NeurIPS 2023 (EF21-SGDM).

    A reply's increment is its model minus the published one, and comes in float64, as g is: nobody sends an estimate whole
    again, and what rounding took once would stay lost.  A node that loses its estimate makes all begin anew (`restart`,
    which `CompressedStrategy` calls); one that leaves for good stays in g until then.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.INCREMENTS

    def __init__(self, *, eta: float = 1.0, **fedavg: Any) -> None:
        """Make it; what FedAvg takes, it takes as well.  Raises `ValueError` for an eta out of range."""
        super().__init__(**fedavg)
        if not 0 < eta < math.inf:
            raise ValueError(f"eta is {eta}; a finite number above 0 is needed")
        self.eta = eta
        self.num_nodes = 0
        self.estimate: Sums = {}

    def restart(self) -> None:
        """Begin the sum anew."""
        self.estimate = {}

    def state(self) -> StrategyState:
        """Return the sum of all increments and the number of nodes that were connected last."""
        return {"estimate": self.estimate, "num_nodes": self.num_nodes}

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned."""
        self.estimate, self.num_nodes = tensors_in(state, "estimate"), count_in(state, "num_nodes")

    def summary(self) -> None:
        """Log the step size."""
        log(INFO, "\t├──> EF21: eta %g", self.eta)
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return FedAvg's messages, and count who is connected."""
        messages = super().configure_train(server_round, arrays, config, grid)
        self.num_nodes = len(list(grid.get_node_ids()))  # after sampling, which waits for nodes
        return messages

    def moved(self, step: RoundResult) -> Sums:
        """Return the parameters one step on along the mean estimate."""
        self.estimate = self.estimate or step.zeros()
        num_nodes = max(self.num_nodes, len(step.replies))  # who answered and left has been there
        moved: Sums = {}
        for name in step.parameters:
            estimate = self.estimate[name]
            for increment in step.differences(name):
                estimate += increment
            moved[name] = step.begin(name) + self.eta / num_nodes * estimate
        return moved
