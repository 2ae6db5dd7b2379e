"""Central evaluation: the published model on the test split.  No other part of the server imports torch."""

import io
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedProx
from torch import Tensor, nn

from fedcomp.core import parse_setting
from fedcomp.data import Dataset
from fedcomp.tasks import build_model, evaluate, input_shape, prepare
from fedcomp.training import parse, parse_schedule
from server.strategies import parse_strategy

BATCH_SIZE = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """The model of the run and the test split, both on one device."""

    model: nn.Module
    x: Tensor
    y: Tensor

    def initial_arrays(self) -> ArrayRecord:
        """Return the initial weights of the model."""
        return ArrayRecord({name: tensor.cpu() for name, tensor in self.model.state_dict().items()})

    def __call__(self, arrays: ArrayRecord) -> tuple[float, float]:
        """Return loss and accuracy, in [0, 1], of the model with weights `arrays`."""
        self.model.load_state_dict(arrays.to_torch_state_dict())
        return evaluate(self.model, self.x, self.y, BATCH_SIZE)


def build_evaluator(model_name: str, dataset: Dataset, seed: int, device_name: str) -> Evaluator:
    """Return the evaluator; raise `ValueError` for an unknown model, and for one that does not fit the dataset.

    It uses the server's GPU, if there is one, unless `device_name`, the device of the nodes, is ``cpu``.
    """
    device = torch.device("cuda" if device_name != "cpu" and torch.cuda.is_available() else "cpu")
    card = dataset.card
    model = build_model(model_name, input_shape(card), card.num_classes, seed).to(device)
    return Evaluator(model, prepare(dataset.test.x, card, device), torch.tensor(dataset.test.y, device=device))


def check_training(training: str, schedule: str, strategy: str) -> None:
    """Raise `ValueError`, which names the setting, for plug-ins or a learning-rate schedule that the run cannot have.

    Whether a plug-in fits the device of a node is checked on that node.
    """
    parse_setting("training", training, lambda text: check_plug_in_names(text, strategy))
    parse_setting("learning-rate-schedule", schedule, parse_schedule)


def check_plug_in_names(training: str, strategy: str) -> None:
    """Raise `ValueError` for plug-ins that do not exist, have wrong settings, or would be there twice."""
    names = {plugin.name for plugin in parse(training).plugins}
    if "fedprox" in names and isinstance(parse_strategy(strategy)(), FedProx):
        raise ValueError(f"the strategy {strategy} adds fedprox already")


def to_npz(arrays: ArrayRecord) -> bytes:
    """Return the model's tensors by name as an .npz archive, which ``numpy.load`` reads without pickle."""
    archive = io.BytesIO()
    np.savez(archive, **{name: array.numpy() for name, array in arrays.items()})  # type: ignore[arg-type]
    return archive.getvalue()
