"""AMSGrad on the server: the optimizer that COMP-AMS steps with, whatever compressed the updates."""

import math
from collections.abc import Mapping
from logging import INFO
from typing import Any, ClassVar

import numpy as np

from fedcomp.flower._compat import log
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums
from fedcomp.flower.strategies.state import StateValue, StrategyState, tensors_in


class FedAMS(ServerOptimizer):
    """AMSGrad with g = published - mean.  Li, Karimi and Li, ICLR 2022 (COMP-AMS); Reddi et al., ICLR 2018.

    m = beta_1 m + (1 - beta_1) g;  v = beta_2 v + (1 - beta_2) g^2;  v_hat = max(v_hat, v);
    model = published - eta m / sqrt(v_hat + eps)

    Other than in Flower's FedAdam, eps is inside the root, and no bias is corrected.  Error feedback makes an update come in
    bursts, and v is quadratic in it: at very small densities a larger `eps` or `beta_2` helps.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.MEAN

    def __init__(
        self, *, eta: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.999, eps: float = 1e-8, **fedavg: Any
    ) -> None:
        """Make it; what FedAvg takes, it takes as well.  Raises `ValueError` for a setting out of range."""
        super().__init__(**fedavg)
        for name, value in (("eta", eta), ("eps", eps)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; a finite number above 0 is needed")
        for name, value in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} is {value}; a number from 0 up and below 1 is needed")
        self.eta, self.beta_1, self.beta_2, self.eps = eta, beta_1, beta_2, eps
        self.m_t: Sums = {}
        self.v_t: Sums = {}
        self.v_hat: Sums = {}

    def state(self) -> StrategyState:
        """Return the moments m, v and max v."""
        return {"m_t": self.m_t, "v_t": self.v_t, "v_hat": self.v_hat}

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned."""
        self.m_t, self.v_t, self.v_hat = (tensors_in(state, name) for name in ("m_t", "v_t", "v_hat"))

    def summary(self) -> None:
        """Log the settings."""
        settings = (self.eta, self.beta_1, self.beta_2, self.eps)
        log(INFO, "\t├──> FedAMS: eta %g | beta_1 %g | beta_2 %g | eps %g", *settings)
        super().summary()

    def moved(self, step: RoundResult) -> Sums:
        """Return the parameters after one step of AMSGrad."""
        if not self.m_t:
            self.m_t, self.v_t, self.v_hat = step.zeros(), step.zeros(), step.zeros()
        moved: Sums = {}
        for name in step.parameters:
            gradient = step.gradient(name)
            m, v, v_hat = self.m_t[name], self.v_t[name], self.v_hat[name]
            m *= self.beta_1
            m += (1 - self.beta_1) * gradient
            v *= self.beta_2
            v += (1 - self.beta_2) * np.square(gradient)
            np.maximum(v_hat, v, out=v_hat)
            moved[name] = step.begin(name) - self.eta * m / np.sqrt(v_hat + self.eps)
        return moved
