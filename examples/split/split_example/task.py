"""The two parts of the network, and the data."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are the server's."""


class Lower(nn.Sequential):
    """The layers of a node: a convolution and its pooling."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))


class Upper(nn.Sequential):
    """The layers of the server: two dense ones."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(8 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10))


@cache
def digits():
    """Return all images, (n, 1, 8, 8), and their classes."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)


def load_data(part: slice) -> TensorDataset:
    """Return a part of the digits."""
    x, y = digits()
    return TensorDataset(x[part], y[part])


@torch.no_grad()
def test(net: nn.Module, data: TensorDataset) -> float:
    """Return the accuracy of `net`."""
    x, y = data.tensors
    return (net.eval()(x).argmax(1) == y).float().mean().item()
