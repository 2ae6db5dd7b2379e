"""What a node learns: `fedcomp gossip` calls it in a process of its own, and `simulate.py` for all nodes."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are for tests."""


class Digits:
    """A network with one hidden layer, trained on this node's share of the digits."""

    def __init__(self, node: int, num_nodes: int, seed: int, *, steps: int, learning_rate: float, batch_size: int):
        torch.set_num_threads(1)
        x, y = load_digits(return_X_y=True)
        x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
        self.x, self.y, self.test = x[node:TRAINING:num_nodes], y[node:TRAINING:num_nodes], (x[TRAINING:], y[TRAINING:])
        self.node, self.seed = node, seed
        self.steps, self.learning_rate, self.batch_size = steps, learning_rate, batch_size
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def first_model(self):
        """Return the model from which all nodes start, drawn by numpy: the same bits on each machine."""
        rng = np.random.default_rng(self.seed)
        shapes = {name: weight.shape for name, weight in self.net.state_dict().items()}
        return {name: rng.uniform(-0.1, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}

    def train(self, model, kept, round_number: int):
        """Return `model` after some steps on the samples of this node; nothing is kept for the next round."""
        self.load(model)
        rng = np.random.default_rng([self.seed, self.node, round_number])
        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.learning_rate)
        for _ in range(self.steps):
            batch = torch.from_numpy(rng.integers(len(self.y), size=self.batch_size))
            optimizer.zero_grad()
            functional.cross_entropy(self.net(self.x[batch]), self.y[batch]).backward()
            optimizer.step()
        return {name: weight.numpy().copy() for name, weight in self.net.state_dict().items()}, {}

    @torch.no_grad()
    def evaluate(self, model, round_number: int) -> dict[str, float]:
        """Return the accuracy on the test samples."""
        self.load(model)
        x, y = self.test
        return {"accuracy": (self.net(x).argmax(1) == y).float().mean().item()}

    def load(self, model) -> None:
        """Take the weights of `model`."""
        self.net.load_state_dict({name: torch.from_numpy(np.array(weight)) for name, weight in model.items()})
