"""The optimizers of local training, whose state is a value that a node can keep between rounds.

They call torch's functional ``sgd`` and ``adam``: the classes in ``torch.optim`` import torch's compiler, which doubles the
time to import torch, and a deployed node starts a new process for each round.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

Tensors = Mapping[str, Tensor]
SECOND_DECAY = 0.999
"""Adam's beta 2."""
EPSILON = 1e-8
STEPS, FIRST, SECOND = "steps", ":first", ":second"
"""The names in Adam's state: the number of steps, and the suffixes of a weight's name for its two moments."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The settings of an optimizer; for Adam, `momentum` is beta 1."""

    learning_rate: float
    momentum: float
    weight_decay: float


class LocalOptimizer(ABC):
    """Changes the `weights`, by name, by their gradients; `kept` is what `state` returned in an earlier round."""

    part: ClassVar[str]
    """The part of a node's state that is this optimizer's."""

    def __init__(self, weights: Mapping[str, Tensor], rates: Rates, kept: Tensors) -> None:
        self._names, self._weights, self._rates = list(weights), list(weights.values()), rates

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights; one that the loss does not depend on has a gradient of zero."""
        self._change([torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self._weights])

    @abstractmethod
    def _change(self, gradients: list[Tensor]) -> None:
        """Change the weights."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what the next round goes on from."""

    @staticmethod
    @abstractmethod
    def decayed(kept: Tensors, rates: Rates, missed: int) -> dict[str, Tensor]:
        """Return the state after `missed` rounds, each counted as one step with zero gradient."""


class Sgd(LocalOptimizer):
    """SGD as ``torch.optim.SGD``; its state is the momentum of each weight, by the weight's name."""

    part = "momentum"

    def __init__(self, weights: Mapping[str, Tensor], rates: Rates, kept: Tensors) -> None:
        super().__init__(weights, rates, kept)
        self._momenta = [_fitting(kept.get(name), weight) for name, weight in weights.items()]

    def _change(self, gradients: list[Tensor]) -> None:
        sgd(
            self._weights,
            gradients,
            self._momenta,
            lr=self._rates.learning_rate,
            momentum=self._rates.momentum,
            weight_decay=self._rates.weight_decay,
            dampening=0,
            nesterov=False,
            maximize=False,
        )

    def state(self) -> dict[str, Tensor]:
        """Return the momenta, those of earlier rounds included; none at first."""
        return {name: each for name, each in zip(self._names, self._momenta, strict=True) if each is not None}

    @staticmethod
    def decayed(kept: Tensors, rates: Rates, missed: int) -> dict[str, Tensor]:
        """Return the momenta, smaller by the momentum factor for each missed round."""
        return {name: momentum * rates.momentum**missed for name, momentum in kept.items()}


class Adam(LocalOptimizer):
    """Adam as ``torch.optim.Adam``; its state are both moments of each weight, and the number of steps."""

    part = "adam"

    def __init__(self, weights: Mapping[str, Tensor], rates: Rates, kept: Tensors) -> None:
        super().__init__(weights, rates, kept)
        moments = [
            [_fitting(kept.get(name + end), weight) for name, weight in weights.items()] for end in (FIRST, SECOND)
        ]
        found = [[each for each in column if each is not None] for column in moments]
        goes_on = STEPS in kept and all(len(column) == len(weights) for column in found)
        self._steps = kept[STEPS].clone() if goes_on else torch.zeros(())
        self._moments = found if goes_on else [[torch.zeros_like(weight) for weight in self._weights] for _ in found]

    def _change(self, gradients: list[Tensor]) -> None:
        first, second = self._moments
        steps = [self._steps.clone() for _ in gradients]
        adam(
            self._weights,
            gradients,
            first,
            second,
            [],
            steps,
            amsgrad=False,
            beta1=self._rates.momentum,
            beta2=SECOND_DECAY,
            lr=self._rates.learning_rate,
            weight_decay=self._rates.weight_decay,
            eps=EPSILON,
            maximize=False,
        )
        self._steps += 1

    def state(self) -> dict[str, Tensor]:
        """Return the moments and the number of steps; nothing before the first step."""
        if not self._steps:
            return {}
        first, second = (dict(zip(self._names, column, strict=True)) for column in self._moments)
        moments = {name + FIRST: first[name] for name in first} | {name + SECOND: second[name] for name in second}
        return {STEPS: self._steps, **moments}

    @staticmethod
    def decayed(kept: Tensors, rates: Rates, missed: int) -> dict[str, Tensor]:
        """Return the moments, smaller by beta 1 and beta 2 for each missed round; the number of steps stays."""
        factors = {FIRST: rates.momentum**missed, SECOND: SECOND_DECAY**missed}
        return {name: tensor * factors.get(name[name.rfind(":") :], 1.0) for name, tensor in kept.items()}


OPTIMIZERS: Mapping[str, type[LocalOptimizer]] = {"sgd": Sgd, "adam": Adam}
"""Optimizers by their names in the run config."""


def _fitting(kept: Tensor | None, weight: Tensor) -> Tensor | None:
    """Return a copy of `kept` on the device of `weight`; None if it belongs to another weight."""
    if kept is None or kept.shape != weight.shape:
        return None
    return kept.to(weight.device, weight.dtype, copy=True)
