"""AdaGrad with an l1 penalty in its proximal step: servers whose models become exactly sparse.

Xu, Wangni, Zhang, Ye, Wu and Zhao, arXiv 2208.05631 (quantized AdaGrad, as composite mirror descent and as dual averaging);
the steps with AdaGrad's diagonal are those of Duchi, Hazan and Singer, JMLR 2011, section 5.  The gradient g is published
minus mean; s_i = |g_{1:t,i}|_2 over all rounds, H = delta + s, and shrink(u, r) = sign(u) max(|u| - r, 0).

An entry that no gradient has reached has H = delta and is shrunk the most: under sparse uplinks, keep `delta` of the order of
the gradients.  Tensors of one or no dimension (biases) are not penalized.

A lossy downlink keeps part of a step back, so zeros reach the nodes exactly with ``dense()`` alone, elsewhere once the
residual was sent.
"""

import math
from collections.abc import Mapping
from logging import INFO
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedcomp.flower._compat import log
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums
from fedcomp.flower.strategies.state import StateValue, StrategyState, count_in, tensors_in

Center = Literal["initial", "zero"]


def shrink(array: NDArray[np.float64], threshold: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return argmin ``(x - array)^2 / 2 + threshold |x|``, entry by entry: nearer to 0 by `threshold`, but not beyond."""
    magnitude = np.abs(array)
    return np.where(magnitude > threshold, np.copysign(magnitude - threshold, array), 0.0)


class _AdaGrad(ServerOptimizer):
    """The settings and AdaGrad's diagonal, that both share; by itself it averages."""

    reply_use: ClassVar[ReplyUse] = ReplyUse.MEAN

    def __init__(self, *, eta: float = 0.01, delta: float = 1e-3, l1_strength: float = 1e-5, **fedavg: Any) -> None:
        """Make it; what FedAvg takes, it takes as well.  Raises `ValueError` for a setting out of range."""
        super().__init__(**fedavg)
        for name, value in (("eta", eta), ("delta", delta)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; a finite number above 0 is needed")
        if not 0 <= l1_strength < math.inf:
            raise ValueError(f"l1_strength is {l1_strength}; a finite number from 0 up is needed")
        self.eta, self.delta, self.l1_strength = eta, delta, l1_strength
        self.sum_of_squares: Sums = {}

    def state(self) -> StrategyState:
        """Return the sum of squared gradients."""
        return {"sum_of_squares": self.sum_of_squares}

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned."""
        self.sum_of_squares = tensors_in(state, "sum_of_squares")

    def summary(self) -> None:
        """Log the settings."""
        settings = (type(self).__name__, self.eta, self.delta, self.l1_strength)
        log(INFO, "\t├──> %s: eta %g | delta %g | l1_strength %g", *settings)
        super().summary()

    def diagonal(self, step: RoundResult, name: str) -> NDArray[np.float64]:
        """Return H = delta + s of a tensor, this round's gradient in it."""
        squares = self.sum_of_squares[name]
        squares += np.square(step.gradient(name))
        return self.delta + np.sqrt(squares)

    def penalty(self, step: RoundResult, name: str) -> float:
        """Return the l1 strength of a tensor: that of the settings, 0 for biases and scales."""
        return self.l1_strength if step.published[name].ndim > 1 else 0.0


class QcmdAdagrad(_AdaGrad):
    """Composite mirror descent: model = shrink(published - eta g / H, eta l1_strength / H).  With no penalty it is AdaGrad."""

    def moved(self, step: RoundResult) -> Sums:
        """Return the parameters after one proximal step from the published one."""
        self.sum_of_squares = self.sum_of_squares or step.zeros()
        moved: Sums = {}
        for name in step.parameters:
            rate = self.eta / self.diagonal(step, name)
            moved[name] = shrink(step.begin(name) - rate * step.gradient(name), rate * self.penalty(step, name))
        return moved


class QrdaAdagrad(_AdaGrad):
    """Regularized dual averaging: model = shrink(center - eta G / H, eta t l1_strength / H), G the sum of t gradients.

    `center` is ``"zero"``, RDA's own: with g the mean of all gradients it reads -sign(g) (eta t / H) max(|g| - l1_strength, 0).
    A net does not learn from zeros; with ``"initial"`` the step is measured from the first published model, and the penalty
    still pulls to zero: argmin <G, x> + t l1_strength |x|_1 + (x - center)' H (x - center) / (2 eta).

    The model is made anew each round from all gradients, each measured at the published model that its nodes held.
    """

    starts_from_published: ClassVar[bool] = False

    def __init__(self, *, center: Center = "initial", **settings: Any) -> None:
        """Make it; what FedAvg and `QcmdAdagrad` take, it takes as well.  Raises `ValueError` for a setting out of range."""
        super().__init__(**settings)
        if center not in ("initial", "zero"):
            raise ValueError(f"center is {center!r}; 'initial' or 'zero' is needed")
        self.center = center
        self.sum_of_gradients: Sums = {}
        self.num_gradients = 0
        self.initial: dict[str, NDArray[Any]] = {}

    def state(self) -> StrategyState:
        """Return the sums of gradients and of their squares, the number of gradients, and the center."""
        return super().state() | {
            "sum_of_gradients": self.sum_of_gradients,
            "num_gradients": self.num_gradients,
            "initial": self.initial,
        }

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned."""
        super().restore(state)
        self.sum_of_gradients, self.initial = tensors_in(state, "sum_of_gradients"), tensors_in(state, "initial")
        self.num_gradients = count_in(state, "num_gradients")

    def moved(self, step: RoundResult) -> Sums:
        """Return the parameters that all gradients so far give."""
        if not self.num_gradients:
            self.sum_of_squares, self.sum_of_gradients = step.zeros(), step.zeros()
            if self.center == "initial":
                self.initial = {name: step.published[name] for name in step.parameters}
        self.num_gradients += 1
        moved: Sums = {}
        for name in step.parameters:
            gradients = self.sum_of_gradients[name]
            gradients += step.gradient(name)
            rate = self.eta / self.diagonal(step, name)
            threshold = rate * (self.num_gradients * self.penalty(step, name))
            moved[name] = shrink(self.initial.get(name, 0.0) - rate * gradients, threshold)
        return moved
