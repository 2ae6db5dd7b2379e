"""A server and a node of split training in this process, with messages that can get lost."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.core import Arrays
from fedcomp.split import (
    ActivationMemory,
    SplitNode,
    SplitServer,
    SplitSettings,
    SplitState,
    cut,
    key_frame,
    layout_of_part,
    load_weights,
    weights_of,
)
from fedcomp.wire import parse_server_message

CLASSES = 3


def model(seed: int = 0) -> nn.Sequential:
    """Return a small model; the cut behind "1" has 6 activations a sample."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def samples(count: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return samples (count, 4) whose label is the largest of their first entries."""
    x = np.random.default_rng(seed).standard_normal((count, 4), np.float32)
    return torch.from_numpy(x), torch.from_numpy(x[:, :CLASSES].argmax(axis=1))


class Pair:
    """One node, number 1, and its server; each has its own copy of the model."""

    def __init__(
        self, settings: SplitSettings, whole: nn.Module | None = None, name: str = "1", count: int = 20
    ) -> None:
        self.model = whole or model()
        self.lower, upper = cut(self.model, name)
        node_lower, _ = cut(copy.deepcopy(self.model), name)
        self.node = SplitNode(node_lower, *samples(count))
        self.layout = layout_of_part(self.lower)
        self.server = SplitServer(upper, settings, self.node.shape, self.layout, max_samples=count)
        self.state: SplitState | None = None
        self.round = 0

    def begin(self) -> None:
        """Begin the next round."""
        self.round += 1
        self.server.begin(1, key_frame(self.layout, weights_of(self.lower), self.round))

    def answer(self, message: bytes) -> bytes:
        """Return the node's answer; as in Flower, its state is kept only if there is one."""
        request, frames = parse_server_message(message)
        state = copy.deepcopy(self.state) or SplitState(ActivationMemory(self.node.row_size(request)))
        reply = self.node.answer(state, request, frames)
        self.state = state
        return reply

    def finish(self, weights: Arrays) -> None:
        """End the round."""
        load_weights(self.lower, weights)

    def run(self, rounds: int = 1) -> None:
        """Train without any fault."""
        for _ in range(rounds):
            self.begin()
            while (weights := self.server.take(1, self.answer(self.server.message(1)))) is None:
                pass
            self.finish(weights)

    def bits(self) -> bytes:
        """Return the trained model to the bit."""
        return b"".join(tensor.numpy().tobytes() for tensor in self.model.state_dict().values())

    def rows(self) -> tuple[list[int], bytes, bytes]:
        """Return the samples that the node knows, and what both ends hold of them."""
        assert self.state is not None
        ids = self.state.memory.ids
        return ids.tolist(), self.state.memory.rows(ids).tobytes(), self.server.nodes[1].memory.rows(ids).tobytes()
