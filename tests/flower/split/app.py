"""A small app of split learning: three classes, whose nodes have 20 samples each."""

import copy
from collections.abc import Callable

import numpy as np
from flwr.app import Context, UserConfig
from flwr.clientapp import ClientApp
from torch import Tensor, nn

import fedcomp
from fedcomp.flower import LocalGrid
from fedcomp.flower.split import LowerParts, SplitClient, SplitTraining
from fedcomp.split import SplitSettings, cut
from tests.split.pair import model, samples

SETTINGS = SplitSettings(fedcomp.cgx(bits=2), fedcomp.cgx(bits=4), batch_size=8, steps=6, momentum=0.5)


def start(context: Context) -> tuple[nn.Module, Tensor, Tensor]:
    """Return the lower part and the samples of a node."""
    lower, _ = cut(model(seed=9), "1")
    return lower, *samples(seed=context.node_id)


def client_app(make: Callable[[Context], tuple[nn.Module, Tensor, Tensor]] = start) -> ClientApp:
    """Return an app that answers the messages of split training."""
    app = ClientApp()
    app.query("split")(SplitClient(make))
    return app


def grid(num_nodes: int = 3, node_config: Callable[[int], UserConfig] | None = None) -> LocalGrid:
    """Return a grid of nodes in this process."""
    return LocalGrid(client_app(), num_nodes, node_config=node_config)


class Run:
    """The model of a training, and the training."""

    def __init__(self, settings: SplitSettings = SETTINGS, lower_parts: LowerParts = "averaged") -> None:
        self.model = copy.deepcopy(model())
        self.training = SplitTraining(*cut(self.model, "1"), samples()[0], settings, lower_parts=lower_parts)

    def bits(self) -> bytes:
        """Return the trained model to the bit."""
        return b"".join(tensor.numpy().tobytes() for tensor in self.model.state_dict().values())

    def accuracy(self) -> float:
        """Return the accuracy on samples of no node."""
        x, y = samples(500, seed=99)
        return float(np.mean(self.model(x).argmax(1).numpy() == y.numpy()))
