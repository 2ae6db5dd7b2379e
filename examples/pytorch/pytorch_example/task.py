"""The network, its data and its training."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are the server's."""


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        """Return the scores of the classes, (n, 10)."""
        x = functional.relu(self.conv1(x))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


@cache
def digits():
    """Return all images, (n, 1, 8, 8), and their classes."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)


def load_data(part: slice) -> TensorDataset:
    """Return a part of the digits."""
    x, y = digits()
    return TensorDataset(x[part], y[part])


def train(net: nn.Module, data: TensorDataset, epochs: int, lr: float, batch_size: int) -> float:
    """Train `net`; return the mean loss."""
    loader = DataLoader(data, batch_size, shuffle=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    running_loss = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(loader))


@torch.no_grad()
def test(net: nn.Module, data: TensorDataset) -> float:
    """Return the accuracy of `net`."""
    x, y = data.tensors
    return (net.eval()(x).argmax(1) == y).float().mean().item()
