"""The network, its data and its training."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A body of two convolutions and a dense layer, and a head."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, 64),
            nn.ReLU(),
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        """Return the scores of the classes, (n, 10)."""
        return self.head(self.body(x))


@cache
def digits():
    """Return all images, (n, 1, 8, 8), and their classes."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)


def load_data(node: int, num_nodes: int) -> tuple[TensorDataset, TensorDataset]:
    """Return the training and the test samples of a node.  Each node has its own names for the digits."""
    x, y = (part[node::num_nodes] for part in digits())
    y = (y + node) % 10
    return TensorDataset(x[:200], y[:200]), TensorDataset(x[200:], y[200:])


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
