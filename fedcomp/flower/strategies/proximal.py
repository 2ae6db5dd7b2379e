"""AdaGrad with an l1 penalty in its proximal step: server optimizers whose models become exactly sparse.

Xu, Wangni, Zhang, Ye, Wu and Zhao, arXiv 2208.05631 (quantized AdaGrad, as composite mirror descent and as dual averaging);
the steps with AdaGrad's diagonal are those of Duchi, Hazan and Singer, JMLR 2011, section 5.  The gradient g is published
minus mean; s_i = |g_{1:t,i}|_2 over all rounds, H = delta + s, and shrink(u, r) = sign(u) max(|u| - r, 0).

An entry that has had no gradient yet has H = delta and shrinks the most: under sparse uplinks, choose `delta` of the order of
the gradients.  Tensors of one or no dimension (biases) have no penalty, and a tensor that no node has ever changed, such as a
frozen layer, stays as it is.  Under a lossy downlink the nodes see exact zeros only after the residual has been sent.
"""

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import check_choice, check_range
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums
from fedcomp.flower.strategies.state import Tensors

Center = Literal["initial", "zero"]


def shrink(array: NDArray[np.float64], threshold: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return argmin ``(x - array)^2 / 2 + threshold |x|``, entry by entry: soft thresholding."""
    magnitude = np.abs(array)
    return np.where(magnitude > threshold, np.copysign(magnitude - threshold, array), 0.0)


class _AdaGrad(ServerOptimizer):
    """The settings and the diagonal of AdaGrad that both algorithms share."""

    reply_use: ClassVar[ReplyUse] = ReplyUse.MEAN
    settings: ClassVar[tuple[str, ...]] = ("eta", "delta", "l1_strength")
    saved: ClassVar[tuple[str, ...]] = ("sum_of_squares",)

    def __init__(self, *, eta: float = 0.01, delta: float = 1e-3, l1_strength: float = 1e-5, **fedavg: Any) -> None:
        """Make the strategy with `eta` and `delta` above 0, `l1_strength` from 0, and the settings of FedAvg."""
        super().__init__(**fedavg)
        for name, value in (("eta", eta), ("delta", delta)):
            check_range(name, value, above=0)
        check_range("l1_strength", l1_strength, least=0)
        self.eta, self.delta, self.l1_strength = float(eta), float(delta), float(l1_strength)
        self.sum_of_squares: Sums = {}

    def add_square(self, name: str, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add the squares of this round's gradient of a tensor to their sum; return H = delta + s of the tensor."""
        squares = self.sum_of_squares[name]
        squares += np.square(gradient)
        return self.delta + np.sqrt(squares)

    def penalty(self, result: RoundResult, name: str) -> float:
        """Return the l1 strength of a tensor: 0 for biases and scales, and where no node has ever changed the tensor."""
        return self.l1_strength if result.published[name].ndim > 1 and self.has_changed(name) else 0.0

    def has_changed(self, name: str) -> bool:
        """Return whether a tensor has had a gradient in any round."""
        return bool(self.sum_of_squares[name].any())


class QcmdAdagrad(_AdaGrad):
    """Composite mirror descent: model = shrink(published - eta g / H, eta l1_strength / H).  Without penalty it is AdaGrad."""

    def apply(self, result: RoundResult) -> Sums:
        """Return the published parameters after one proximal step."""
        self.sum_of_squares = self.sum_of_squares or result.zeros()
        parameters: Sums = {}
        for name in result.parameters:
            gradient = result.gradient(name)
            rate = self.eta / self.add_square(name, gradient)
            parameters[name] = shrink(result.start(name) - rate * gradient, rate * self.penalty(result, name))
        return parameters


class QrdaAdagrad(_AdaGrad):
    """Regularized dual averaging: model = shrink(center - eta G / H, eta t l1_strength / H), G the sum of t gradients.

    With `center` ``"zero"`` this is RDA: with g the mean of all gradients, -sign(g) (eta t / H) max(|g| - l1_strength, 0).
    A neural network does not learn from zeros.  With ``"initial"`` the step starts from the first published model, and the
    penalty still pulls to zero: argmin <G, x> + t l1_strength |x|_1 + (x - center)' H (x - center) / (2 eta).

    Each round computes the model from all gradients, each measured at the published model that its nodes held.
    """

    starts_from_published: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = (*_AdaGrad.settings, "center")
    saved: ClassVar[tuple[str, ...]] = (*_AdaGrad.saved, "sum_of_gradients", "num_gradients", "initial")

    def __init__(self, *, center: Center = "initial", **settings: Any) -> None:
        super().__init__(**settings)
        check_choice("center", center, ("initial", "zero"))
        self.center = center
        self.sum_of_gradients: Sums = {}
        self.num_gradients = 0
        self.initial: Tensors = {}

    def apply(self, result: RoundResult) -> Sums:
        """Return the parameters that all gradients so far give."""
        if not self.num_gradients:
            self.sum_of_squares, self.sum_of_gradients = result.zeros(), result.zeros()
            if self.center == "initial":
                self.initial = {name: result.numbers(name, result.published[name]) for name in result.parameters}
        self.num_gradients += 1
        parameters: Sums = {}
        for name in result.parameters:
            gradient, gradients = result.gradient(name), self.sum_of_gradients[name]
            gradients += gradient
            rate = self.eta / self.add_square(name, gradient)
            threshold = rate * (self.num_gradients * self.penalty(result, name))
            center = self.initial.get(name, 0.0) if self.has_changed(name) else result.start(name)
            parameters[name] = shrink(center - rate * gradients, threshold)
        return parameters
