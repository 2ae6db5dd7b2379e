"""Central evaluation: the published model on the test split.  No other part of the server imports torch."""

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedProx
from numpy.typing import NDArray
from torch import Tensor, nn

import fedcomp
from fedcomp.core import parse_setting
from fedcomp.data import Dataset
from fedcomp.flower import RigL
from fedcomp.sync import check_masked
from fedcomp.tasks import build_model, evaluate, input_shape, prepare
from fedcomp.training import Inference, Prepared, pack, parse, parse_schedule
from server.strategies import parse_strategy

BATCH_SIZE = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """The model of the run, the module that evaluates it, and the test split, all on one device."""

    model: nn.Module
    x: Tensor
    y: Tensor
    inference: nn.Module

    def initial_arrays(self) -> ArrayRecord:
        """Return the initial weights of the model."""
        return ArrayRecord({name: tensor.cpu() for name, tensor in self.model.state_dict().items()})

    def __call__(self, arrays: ArrayRecord) -> tuple[float, float]:
        """Return loss and accuracy, in [0, 1], of the model with weights `arrays`."""
        self.model.load_state_dict(arrays.to_torch_state_dict())
        return evaluate(self.inference, self.x, self.y, BATCH_SIZE)

    def packed(self, arrays: ArrayRecord) -> bytes | None:
        """Return the weights to use the model with as a packed .npz archive; `None` if the plug-ins leave them as they are.

        `fedcomp.training.unpack` reads it.
        """
        if not isinstance(self.inference, Inference):
            return None
        self.model.load_state_dict(arrays.to_torch_state_dict())
        return _npz(pack(self.inference.tensors()))


def build_evaluator(model_name: str, dataset: Dataset, seed: int, device_name: str, training: str = "") -> Evaluator:
    """Return the evaluator; raise `ValueError` for an unknown model, for one that does not fit the dataset or a plug-in.

    The model is evaluated as the plug-ins of `training` say, for example with quantized weights.  The evaluator uses the
    server's GPU, if there is one, unless `device_name`, the device of the nodes, is ``cpu``.
    """
    device = torch.device("cuda" if device_name != "cpu" and torch.cuda.is_available() else "cpu")
    card = dataset.card
    model = build_model(model_name, input_shape(card), card.num_classes, seed)
    plan = parse_setting("training", training, parse)
    inference = parse_setting("training", training, lambda _: plan.inference(plan.prepare(model, seed).to(device)))
    x, y = prepare(dataset.test.x, card, device), torch.tensor(dataset.test.y, device=device)
    return Evaluator(model, x, y, inference)


def check_training(training: str, schedule: str, strategy: str, uplink: str) -> None:
    """Raise `ValueError`, which names the setting, for plug-ins or a learning-rate schedule that the run cannot have.

    Whether a plug-in fits the device of a node is checked on that node.
    """
    parse_setting("training", training, lambda text: check_plug_in_names(text, strategy, uplink))
    parse_setting("learning-rate-schedule", schedule, parse_schedule)


def check_plug_in_names(training: str, strategy: str, uplink: str) -> None:
    """Raise `ValueError` for plug-ins that do not exist, or do not fit each other, the strategy or the uplink."""
    names, chosen = {plugin.name for plugin in parse(training).plugins}, parse_strategy(strategy)()
    if "fedprox" in names and isinstance(chosen, FedProx):
        raise ValueError(f"the strategy {strategy} adds fedprox already")
    if "rigl" not in names and isinstance(chosen, RigL):
        raise ValueError(f"the strategy {strategy} moves the weights of sparse models; rigl(density=0.1) makes one")
    if "rigl" in names:
        check_masked(fedcomp.parse(uplink))


def check_same_preparation(before: str, training: str) -> None:
    """Raise `ValueError` if `training` names other plug-ins that add to the model, such as masks, than those `before`."""
    began, wanted = (
        {str(plugin) for plugin in parse(text).plugins if isinstance(plugin.begin, Prepared)}
        for text in (before, training)
    )
    if began != wanted:
        model = f"the model of this run was prepared by {' + '.join(sorted(began)) or 'no plug-in'}"
        raise ValueError(f"training is {training!r}; {model}, and the same is needed to resume")


def to_npz(arrays: ArrayRecord) -> bytes:
    """Return the model's tensors by name as an .npz archive, which ``numpy.load`` reads without pickle."""
    return _npz({name: array.numpy() for name, array in arrays.items()})


def _npz(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    archive = io.BytesIO()
    np.savez(archive, **arrays)  # type: ignore[arg-type]
    return archive.getvalue()
