"""The training plug-ins and the learning rate of a run, and whether the plug-ins fit a node."""

from collections.abc import Mapping

import torch
from torch import nn

from fedcomp.training import Plan, fedprox, parse, parse_schedule


def training_plan(run: Mapping[str, object], config: Mapping[str, object]) -> Plan:
    """Return the plug-ins of the run; Flower's strategy FedProx adds its own by ``proximal-mu`` in a message's `config`."""
    proximal_mu = float(str(config.get("proximal-mu", 0.0)))
    return parse(str(run["training"])) + (fedprox(proximal_mu) if proximal_mu else Plan())


def learning_rate(run: Mapping[str, object], server_round: int) -> float:
    """Return the learning rate of a round, from 1, by the schedule of the run."""
    schedule = parse_schedule(str(run["learning-rate-schedule"]))
    return float(str(run["learning-rate"])) * schedule(min(1.0, (server_round - 1) / int(str(run["num-rounds"]))))


def check_plug_ins(text: str, model: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise `ValueError` for plug-ins that do not fit the model, its inputs of this shape, or its device.

    The model gets what they add to a new one.
    """
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    x, y = torch.zeros(1, *shape, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    plan = parse(text)
    plan.check(plan.prepare(model, 0), x, y)
