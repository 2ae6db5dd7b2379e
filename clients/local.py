"""Local training: plain SGD on a node's own samples, from one synchronisation to the next.

Momentum starts from zero each time: it belongs to weights that the server has since replaced.  SGD is torch's, as a
function: the class imports torch's compiler, for as long again as torch itself, and a real node is a new process a round.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """How a node trains in one round: `steps`, or `epochs` where that is 0.

    `proximal_mu` is the weight of FedProx's pull to where the round began.  Li et al., MLSys 2020.
    """

    epochs: int
    steps: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    proximal_mu: float = 0.0


def batches(count: int, plan: LocalPlan, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Return the batches of a round, as indices below `count`; each epoch takes every sample once, in its own order."""
    per_epoch = -(-count // plan.batch_size)
    return islice(_endless(count, plan.batch_size, rng), plan.steps or plan.epochs * per_epoch)


def _endless(count: int, batch_size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    while True:
        order = rng.permutation(count)
        for start in range(0, count, batch_size):
            yield order[start : start + batch_size]


def train(model: nn.Module, x: Tensor, y: Tensor, plan: LocalPlan, rng: np.random.Generator) -> float:
    """Train `model` in place on samples `x`, labels `y`; return the mean cross-entropy of the batches as they were met.

    All are on one device.  `rng` orders the batches.  Raises `ValueError` for no samples.
    """
    if len(y) == 0:
        raise ValueError("no samples; a node needs at least one to train")
    weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
    anchors = [weight.detach().clone() for weight in weights] if plan.proximal_mu else []
    momenta: list[Tensor | None] = [None for _ in weights]
    model.train()
    total, seen = torch.zeros((), device=y.device), 0
    for batch in batches(len(y), plan, rng):
        chosen = torch.as_tensor(batch, device=y.device)
        loss = functional.cross_entropy(model(x.index_select(0, chosen)), y.index_select(0, chosen))
        total.add_(loss.detach(), alpha=len(batch))
        seen += len(batch)
        for weight, anchor in zip(weights, anchors, strict=False):
            loss = loss + plan.proximal_mu / 2 * (weight - anchor).square().sum()
        slopes = list(torch.autograd.grad(loss, weights, materialize_grads=True))
        with torch.no_grad():
            sgd(
                weights,
                slopes,
                momenta,
                lr=plan.learning_rate,
                momentum=plan.momentum,
                weight_decay=plan.weight_decay,
                dampening=0,
                nesterov=False,
                maximize=False,
            )
    return float(total) / seen
