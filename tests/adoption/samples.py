"""Made-up samples of ten classes, each a pattern of 8 x 8 pixels and noise."""

from functools import cache

import numpy as np
import torch
from flwr.app import Context

from tests.adoption.quickstart import NODES

TRAINING, TEST, NOISE = 500, 1000, 0.9
Samples = tuple[torch.Tensor, torch.Tensor]
"""Images, float32 (n, 1, 8, 8), and classes, int64 (n,)."""


@cache
def _all() -> Samples:
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((10, 1, 8, 8))
    y = rng.integers(10, size=TRAINING + TEST)
    x = patterns[y] + NOISE * rng.standard_normal((len(y), 1, 8, 8))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def own(context: Context) -> Samples:
    """Return the training samples of a node."""
    part = slice(int(context.node_config["partition-id"]), TRAINING, NODES)
    x, y = _all()
    return x[part], y[part]


def held_out() -> Samples:
    """Return samples that no node has."""
    x, y = _all()
    return x[TRAINING:], y[TRAINING:]


def batches(count: int, size: int = 20) -> tuple[torch.Tensor, ...]:
    """Return the indices of `count` samples in a new order, `size` at a time."""
    found: tuple[torch.Tensor, ...] = torch.randperm(count).split(size)  # type: ignore[no-untyped-call]
    return found


def accuracy(model: torch.nn.Module) -> float:
    """Return the share of the test samples that `model` classifies correctly."""
    x, y = held_out()
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())
