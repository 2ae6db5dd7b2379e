"""Server optimizers of the compression papers: AMSGrad, majority vote, and the sum of EF21's increments."""

import math
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from fedcomp.core import check_range
from fedcomp.flower.records import Messages
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums


class FedAMS(ServerOptimizer):
    """AMSGrad with g = published - mean.  Li, Karimi and Li, ICLR 2022 (COMP-AMS); Reddi et al., ICLR 2018.

    m = beta_1 m + (1 - beta_1) g;  v = beta_2 v + (1 - beta_2) g^2;  v_hat = max(v_hat, v);
    model = published - eta m / sqrt(v_hat + eps)

    Unlike in Flower's FedAdam, eps is inside the root and there is no bias correction.  Under error feedback updates arrive
    in bursts, and v is quadratic in them: at very small densities a larger `eps` or `beta_2` helps.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.MEAN
    settings: ClassVar[tuple[str, ...]] = ("eta", "beta_1", "beta_2", "eps")
    saved: ClassVar[tuple[str, ...]] = ("m_t", "v_t", "v_hat")

    def __init__(
        self, *, eta: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.999, eps: float = 1e-8, **fedavg: Any
    ) -> None:
        """Make the strategy with `eta` and `eps` above 0, decays from 0 and below 1, and the settings of FedAvg."""
        super().__init__(**fedavg)
        for name, value in (("eta", eta), ("eps", eps)):
            check_range(name, value, above=0)
        for name, value in (("beta_1", beta_1), ("beta_2", beta_2)):
            check_range(name, value, least=0, most=math.nextafter(1, 0), what="a decay below 1")
        self.eta, self.beta_1, self.beta_2, self.eps = map(float, (eta, beta_1, beta_2, eps))
        self.m_t: Sums = {}
        self.v_t: Sums = {}
        self.v_hat: Sums = {}

    def apply(self, result: RoundResult) -> Sums:
        """Return the published parameters after one step of AMSGrad."""
        if not self.m_t:
            self.m_t, self.v_t, self.v_hat = result.zeros(), result.zeros(), result.zeros()
        parameters: Sums = {}
        for name in result.parameters:
            gradient = result.gradient(name)
            m, v, v_hat = self.m_t[name], self.v_t[name], self.v_hat[name]
            m *= self.beta_1
            m += (1 - self.beta_1) * gradient
            v *= self.beta_2
            v += (1 - self.beta_2) * np.square(gradient)
            np.maximum(v_hat, v, out=v_hat)
            parameters[name] = result.start(name) - self.eta * m / np.sqrt(v_hat + self.eps)
        return parameters


class MajorityVote(ServerOptimizer):
    """model = published + step sign(sum over nodes of sign(update)).

    Bernstein et al., ICML 2018, algorithm 3; Bernstein et al., ICLR 2019, on its robustness against a minority of adversaries.
    An update of 0 is no vote, and a tie leaves the entry as it is.  Votes have no weights; counters, BatchNorm statistics and
    metrics are weighted means.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.DIFFERENCES
    settings: ClassVar[tuple[str, ...]] = ("step",)

    def __init__(self, *, step: float = 1e-3, **fedavg: Any) -> None:
        """Make the strategy with the size of a step, above 0, and the settings of FedAvg."""
        super().__init__(**fedavg)
        check_range("step", step, above=0)
        self.step = float(step)

    def apply(self, result: RoundResult) -> Sums:
        """Return the published parameters, each moved by one step in the direction of most votes."""
        parameters: Sums = {}
        for name in result.parameters:
            votes = np.zeros(result.tensors[name].number_shape, np.int32)
            for difference in result.differences(name):
                votes += difference > 0
                votes -= difference < 0
            parameters[name] = result.start(name) + self.step * np.sign(votes)
        return parameters


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
        self.eta = float(eta)
        self.num_nodes = 0
        self.estimate: Sums = {}

    def restart(self) -> None:
        """Start the sum of the increments from zero."""
        self.estimate = {}

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
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
