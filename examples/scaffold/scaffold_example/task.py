"""The network, its data and its corrected training."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are the server's."""
State = dict[str, torch.Tensor]


class Net(nn.Sequential):
    """One hidden layer."""

    def __init__(self):
        super().__init__(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


@cache
def digits():
    """Return all images, (n, 64), and their classes."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)


def load_data(node: int, num_nodes: int) -> TensorDataset:
    """Return the training samples of a node, which has only some of the ten classes."""
    x, y = (part[:TRAINING] for part in digits())
    own = y % num_nodes == node
    return TensorDataset(x[own], y[own])


def load_test() -> TensorDataset:
    """Return digits of all classes that no node has."""
    x, y = digits()
    return TensorDataset(x[TRAINING:], y[TRAINING:])


def zeros() -> State:
    """Return control variates of zeros."""
    return {name: torch.zeros_like(weight) for name, weight in Net().state_dict().items()}


def train(net: Net, data: TensorDataset, own: State, shared: State, epochs: int, lr: float, batch_size: int) -> State:
    """Train `net` with the correction of SCAFFOLD; return the change of the node's control variates (eq. 4, option II)."""
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    loader = DataLoader(data, batch_size, shuffle=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            for name, weight in net.named_parameters():
                weight.grad += shared[name] - own[name]
            optimizer.step()
    moved = epochs * len(loader) * lr
    return {name: (before[name] - weight.detach()) / moved - shared[name] for name, weight in net.named_parameters()}


@torch.no_grad()
def test(net: nn.Module, data: TensorDataset) -> float:
    """Return the accuracy of `net`."""
    x, y = data.tensors
    return (net.eval()(x).argmax(1) == y).float().mean().item()
