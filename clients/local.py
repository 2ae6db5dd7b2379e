"""Local training: SGD on a node's own samples, for one round.

`Sgd` calls torch's functional ``sgd``: the class ``torch.optim.SGD`` imports torch's compiler, which doubles the time to
import torch, and a deployed node starts a new process for each round.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd

from fedcomp.training import Plan, State

MOMENTUM = "momentum"
"""The part of a node's state that is the optimizer's."""
NO_PLUG_INS = Plan()


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """How a node trains in one round: for `steps` batches, or for `epochs` if `steps` is 0; with the plug-ins of `training`."""

    epochs: int
    steps: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    training: Plan = NO_PLUG_INS


class Sgd:
    """SGD as ``torch.optim.SGD``, for the `weights` by name; `momenta` are the momentum buffers of earlier rounds."""

    def __init__(self, weights: Mapping[str, Tensor], plan: LocalPlan, momenta: Mapping[str, Tensor]) -> None:
        self._names, self._weights = list(weights), list(weights.values())
        self._plan = plan
        self._momenta = [_fitting(momenta.get(name), weight) for name, weight in weights.items()]

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for weight in self._weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights; one that the loss does not depend on has a gradient of zero."""
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self._weights]
        sgd(
            self._weights,
            gradients,
            self._momenta,
            lr=self._plan.learning_rate,
            momentum=self._plan.momentum,
            weight_decay=self._plan.weight_decay,
            dampening=0,
            nesterov=False,
            maximize=False,
        )

    def momenta(self) -> dict[str, Tensor]:
        """Return the momentum buffers by the names of the weights, those of earlier rounds included; none at first."""
        return {name: each for name, each in zip(self._names, self._momenta, strict=True) if each is not None}


def _fitting(momentum: Tensor | None, weight: Tensor) -> Tensor | None:
    """Return a copy of `momentum` on the device of `weight`; None if it belongs to another weight."""
    if momentum is None or momentum.shape != weight.shape:
        return None
    return momentum.to(weight.device, weight.dtype, copy=True)


def batches(count: int, plan: LocalPlan, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield the batches of a round, as indices below `count`; each epoch has every sample once, in a new order."""
    starts = range(0, count, plan.batch_size)
    steps = plan.steps or plan.epochs * len(starts)
    for _ in range(-(-steps // len(starts))):
        order = rng.permutation(count)
        for start in starts[:steps]:
            yield order[start : start + plan.batch_size]
        steps -= len(starts)


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    plan: LocalPlan,
    rng: np.random.Generator,
    state: State | None = None,
    *,
    seed: int = 0,
) -> tuple[float, dict[str, Mapping[str, Tensor]]]:
    """Train `model` in place on samples `x` with labels `y`; return the mean cross-entropy before each step, and the new state.

    All are on one device.  `rng` orders the samples, `seed` decides the random numbers of the plug-ins.  `state` is what an
    earlier round returned: the optimizer's momentum and what the plug-ins keep.  Raises `ValueError` if there are no samples,
    and for a plug-in that does not fit them or the model.
    """
    if len(y) == 0:
        raise ValueError("0 samples; a node needs at least 1 to train")
    kept = state or {}
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    optimizer = Sgd(weights, plan, kept.get(MOMENTUM, {}))
    training = plan.training.begin(model, kept, seed=seed)
    try:
        model.train()
        total, seen = torch.zeros((), device=y.device), 0
        for batch in batches(len(y), plan, rng):
            rows = torch.as_tensor(batch, device=y.device)
            loss = training.step(optimizer, x.index_select(0, rows), y.index_select(0, rows), functional.cross_entropy)
            total.add_(loss, alpha=len(batch))
            seen += len(batch)
    finally:
        optimizer.zero_grad()  # the model lives on, and its gradients would take as much memory
        new_state = training.end()
    momenta = optimizer.momenta()
    return float(total) / seen, new_state | ({MOMENTUM: momenta} if momenta else {})
