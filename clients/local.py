"""Local training on a node's own samples, for one round."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from clients.optimizers import OPTIMIZERS, LocalOptimizer, Rates
from fedcomp.training import Plan, State

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
    optimizer: str = "sgd"

    @property
    def optimizer_class(self) -> type[LocalOptimizer]:
        """The optimizer; raises `ValueError` for an unknown one."""
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer {self.optimizer!r}; there are: {', '.join(OPTIMIZERS)}")
        return OPTIMIZERS[self.optimizer]

    @property
    def rates(self) -> Rates:
        """The settings of the optimizer."""
        return Rates(self.learning_rate, self.momentum, self.weight_decay)


@dataclass(frozen=True, slots=True)
class Trained:
    """What a round leaves beside the weights: the mean loss of its batches, the node's new state, and a report by name."""

    loss: float
    state: dict[str, Mapping[str, Tensor]]
    report: Mapping[str, Tensor]


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
) -> Trained:
    """Train `model` in place on samples `x` with labels `y`, each batch by its mean cross-entropy.

    All are on one device.  `rng` orders the samples, `seed` decides the random numbers of the plug-ins.  `state` is what an
    earlier round returned: the optimizer's state and what the plug-ins keep.  Raises `ValueError` if there are no samples,
    and for a plug-in that does not fit them or the model.
    """
    if len(y) == 0:
        raise ValueError("0 samples; a node needs at least 1 to train")
    kept = state or {}
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    kind = plan.optimizer_class
    optimizer = kind(weights, plan.rates, kept.get(kind.part, {}))
    training = plan.training.begin(model, kept, seed=seed)
    try:
        model.train()
        total, seen = torch.zeros((), device=y.device), 0
        for batch in batches(len(y), plan, rng):
            rows = torch.as_tensor(batch, device=y.device)
            loss = training.step(optimizer, x.index_select(0, rows), y.index_select(0, rows), functional.cross_entropy)
            total.add_(loss, alpha=len(batch))
            seen += len(batch)
        report = training.report()
    finally:
        optimizer.zero_grad()  # the model lives on, and its gradients would take as much memory
        new_state = training.end()
    own = optimizer.state()
    return Trained(float(total) / seen, new_state | ({kind.part: own} if own else {}), report)
