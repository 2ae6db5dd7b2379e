"""The server side of EF21: nodes send increments of their estimates, and the server keeps the mean estimate."""

from collections.abc import Iterable
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedcomp.core import check_range
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums


class EF21(ServerOptimizer):
    """model = published + eta g, where g, the mean of all nodes' estimates, grows by the increments that they send.

    g is the sum of all increments divided by the number of connected nodes, without weights.  An absent node has an
    increment of 0, and its estimate still counts.  Richtárik, Sokolov and Fatkhullin, NeurIPS 2021, algorithm 2; with
    momentum on the nodes' side, Fatkhullin, Tyurin and Richtárik, NeurIPS 2023 (EF21-SGDM).

    The increments and g are float64: nodes never send an estimate whole again, so a rounding error would never go away.
    After a node has lost its estimate, `CompressedStrategy` calls `restart`, and all nodes start from zero.  The estimate of
    a node that leaves for good stays in g until then.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.INCREMENTS
    settings: ClassVar[tuple[str, ...]] = ("eta",)
    saved: ClassVar[tuple[str, ...]] = ("estimate", "num_nodes")

    def __init__(self, *, eta: float = 1.0, **fedavg: Any) -> None:
        """Make the strategy with the step size `eta`, above 0, and the settings of FedAvg."""
        super().__init__(**fedavg)
        check_range("eta", eta, above=0)
        self.eta = eta
        self.num_nodes = 0
        self.estimate: Sums = {}

    def restart(self) -> None:
        """Start the sum of the increments from zero."""
        self.estimate = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of FedAvg; count the connected nodes."""
        messages = super().configure_train(server_round, arrays, config, grid)
        self.num_nodes = len(list(grid.get_node_ids()))  # after sampling, which waits for nodes
        return messages

    def apply(self, result: RoundResult) -> Sums:
        """Return the published parameters moved along the mean estimate."""
        self.estimate = self.estimate or result.zeros()
        num_nodes = max(self.num_nodes, len(result.replies))  # a node may answer and disconnect
        parameters: Sums = {}
        for name in result.parameters:
            estimate = self.estimate[name]
            for increment in result.differences(name):
                estimate += increment
            parameters[name] = result.start(name) + self.eta / num_nodes * estimate
        return parameters
