"""The training plug-ins of a run, and whether they fit a node."""

from collections.abc import Mapping

import torch
from torch import nn

from fedcomp.training import Plan, fedprox, parse


def training_plan(run: Mapping[str, object], config: Mapping[str, object]) -> Plan:
    """Return the plug-ins of the run; Flower's strategy FedProx adds its own by ``proximal-mu`` in a message's `config`."""
    proximal_mu = float(str(config.get("proximal-mu", 0.0)))
    return parse(str(run["training"])) + (fedprox(proximal_mu) if proximal_mu else Plan())


def check_plug_ins(text: str, model: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise `ValueError` for plug-ins that do not fit the model, its inputs of this shape, or its device."""
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    x, y = torch.zeros(1, *shape, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    parse(text).check(model, x, y)


def check_training(text: str, model: nn.Module, shape: tuple[int, ...]) -> None:
    """Do what `check_plug_ins` does for the setting `training`; the error names it."""
    try:
        check_plug_ins(text, model, shape)
    except ValueError as error:
        raise ValueError(f"training is {text!r}; {error}") from None
