"""Strategies by name, Flower's and fedcomp's, as run configs say them: ``fedavgm(server_momentum=0.9)``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
)

from fedcomp.core import parse_call
from fedcomp.flower import EF21, FedAMS, MajorityVote, QcmdAdagrad, QrdaAdagrad
from server.rules import Real, Rule, Text, Whole

SERVER_STEP = {"eta": Real(above=0), "eta_l": Real(above=0), "tau": Real(above=0)}
MOMENTS = {"beta_1": Real(least=0, most=1), "beta_2": Real(least=0, most=1)}
AMSGRAD = {name: Real(least=0, below=1) for name in ("beta_1", "beta_2")} | {"eps": Real(above=0)}
PROXIMAL: Mapping[str, Rule] = {"eta": Real(above=0), "delta": Real(above=0), "l1_strength": Real(least=0)}
CENTER = {"center": Text("initial|zero", "'initial' or 'zero'")}
MALICIOUS = {"num_malicious_nodes": Whole()}

STRATEGIES: Mapping[str, tuple[Callable[..., FedAvg], Mapping[str, Rule]]] = {
    "bulyan": (Bulyan, MALICIOUS),
    "ef21": (EF21, {"eta": Real(above=0)}),
    "fedadagrad": (FedAdagrad, SERVER_STEP),
    "fedadam": (FedAdam, SERVER_STEP | MOMENTS),
    "fedams": (FedAMS, {"eta": Real(above=0)} | AMSGRAD),
    "fedavg": (FedAvg, {}),
    "fedavgm": (FedAvgM, {"server_learning_rate": Real(above=0), "server_momentum": Real(least=0, most=1)}),
    "fedmedian": (FedMedian, {}),
    "fedprox": (FedProx, {"proximal_mu": Real(least=0)}),
    "fedtrimmedavg": (FedTrimmedAvg, {"beta": Real(least=0, most=0.499)}),
    "fedyogi": (FedYogi, SERVER_STEP | MOMENTS),
    "krum": (Krum, MALICIOUS),
    "majorityvote": (MajorityVote, {"step": Real(above=0)}),
    "multikrum": (MultiKrum, MALICIOUS | {"num_nodes_to_select": Whole(1)}),
    "qcmdadagrad": (QcmdAdagrad, PROXIMAL),
    "qrdaadagrad": (QrdaAdagrad, {**PROXIMAL, **CENTER}),
}
"""Name -> class and the settings that a text may give it; what all share comes from the run config."""


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """A strategy's name and own settings, checked; `build` makes it."""

    name: str
    settings: Mapping[str, Any]

    def build(self, **common: object) -> FedAvg:
        """Return the strategy with its own settings and those that all strategies share."""
        make, _ = STRATEGIES[self.name]
        return make(**common, **self.settings)


def parse_strategy(text: str) -> StrategySpec:
    """Return the strategy that `text` names; raise `ValueError` for an unknown one or a setting out of range."""
    name, args, given = parse_call(text)
    if name not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; there are: {', '.join(STRATEGIES)}")
    _, rules = STRATEGIES[name]
    known = f"{name} takes: {', '.join(rules) or 'no settings'}"
    if args:
        raise ValueError(f"strategy {text!r} has a setting without a name; {known}")
    settings: dict[str, object] = {}
    for key, value in given.items():
        if key not in rules:
            raise ValueError(f"strategy {text!r} has an unknown setting {key!r}; {known}")
        try:
            settings[key] = rules[key](value)
        except ValueError as error:
            raise ValueError(f"{key} of {name} is {value!r}; {error}") from None
    return StrategySpec(name, settings)
