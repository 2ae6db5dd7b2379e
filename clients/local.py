"""Local training: SGD on a node's own samples, for one round.

Momentum starts from zero in each round, because the server has replaced the weights that it belonged to.  This calls
torch's functional ``sgd``: the class ``SGD`` imports torch's compiler, which doubles the time to import torch, and a
deployed node starts a new process for each round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """How a node trains in one round: for `steps` batches, or for `epochs` if `steps` is 0.

    `proximal_mu` weighs FedProx's penalty on the distance to the round's initial weights.  Li et al., MLSys 2020.
    """

    epochs: int
    steps: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    proximal_mu: float = 0.0


def batches(count: int, plan: LocalPlan, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield the batches of a round, as indices below `count`; each epoch has every sample once, in a new order."""
    starts = range(0, count, plan.batch_size)
    steps = plan.steps or plan.epochs * len(starts)
    for _ in range(-(-steps // len(starts))):
        order = rng.permutation(count)
        for start in starts[:steps]:
            yield order[start : start + plan.batch_size]
        steps -= len(starts)


def train(model: nn.Module, x: Tensor, y: Tensor, plan: LocalPlan, rng: np.random.Generator) -> float:
    """Train `model` in place on samples `x` with labels `y`; return the mean cross-entropy before each step.

    All are on one device.  `rng` orders the samples.  Raises `ValueError` if there are none.
    """
    if len(y) == 0:
        raise ValueError("0 samples; a node needs at least 1 to train")
    weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
    anchors = [weight.detach().clone() for weight in weights] if plan.proximal_mu else []
    momenta: list[Tensor | None] = [None for _ in weights]
    model.train()
    total, seen = torch.zeros((), device=y.device), 0
    for batch in batches(len(y), plan, rng):
        rows = torch.as_tensor(batch, device=y.device)
        loss = functional.cross_entropy(model(x.index_select(0, rows)), y.index_select(0, rows))
        total.add_(loss.detach(), alpha=len(batch))
        seen += len(batch)
        for weight, anchor in zip(weights, anchors, strict=False):
            loss = loss + plan.proximal_mu / 2 * (weight - anchor).square().sum()
        gradients = list(torch.autograd.grad(loss, weights, materialize_grads=True))
        with torch.no_grad():
            sgd(
                weights,
                gradients,
                momenta,
                lr=plan.learning_rate,
                momentum=plan.momentum,
                weight_decay=plan.weight_decay,
                dampening=0,
                nesterov=False,
                maximize=False,
            )
    return float(total) / seen
