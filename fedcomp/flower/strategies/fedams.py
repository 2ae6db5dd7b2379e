"""AMSGrad on the server: the optimizer of COMP-AMS."""

import math
from typing import Any, ClassVar

import numpy as np

from fedcomp.core import check_range
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
        self.eta, self.beta_1, self.beta_2, self.eps = eta, beta_1, beta_2, eps
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
