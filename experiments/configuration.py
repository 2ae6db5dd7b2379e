"""The settings of one cell, and the run config of the Flower app that they come to."""

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[1]
OWN = ("clients", "clients-per-round", "iterations", "evaluate-every")
"""Settings of a study that are no settings of the app, or mean something else there."""
SET_HERE = frozenset(
    {
        "num-rounds", "runs-dir", "run-name", "checkpoint-every", "resume", "min-nodes", "data-dir", "node-timeout",
        "round-timeout", "fraction-evaluate", "num-threads", "local-epochs",
    }
)  # fmt: skip
"""Settings of the app that a study sets itself."""

NAMING = frozenset(
    {
        "dataset", "partition", "model", "seed", "strategy", "fraction-train", "sampling-decay", "batch-size", "local-steps",
        "learning-rate", "momentum", "weight-decay", "uplink", "downlink", *OWN,
    }
)  # fmt: skip
"""Settings that are always part of a cell's name.  One that the app gains later is only where it is not the default, so that
results of before are still found; the device never is."""

Value = str | int | float | bool


@cache
def defaults() -> Mapping[str, Value]:
    """Return the run config that the app has by default."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return MappingProxyType(table["tool"]["flwr"]["app"]["config"])


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a method's `label`, and all settings, by their names in the study file."""

    label: str
    settings: Mapping[str, Value] = field(hash=False)

    @property
    def name(self) -> str:
        """Twelve hexadecimal digits that no other settings have."""
        unused = {"device"} | ({"fraction-train"} if "clients-per-round" in self.settings else set())
        named = {
            key: value
            for key, value in self.settings.items()
            if key not in unused and (key in NAMING or value != defaults().get(key))
        }
        text = json.dumps([self.label, named], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def clients(self) -> int:
        """The number of nodes."""
        return int(self.settings["clients"])

    @property
    def clients_per_round(self) -> int:
        """The number of nodes that train in a round."""
        if "clients-per-round" in self.settings:
            return int(self.settings["clients-per-round"])
        return max(1, int(self.clients * float(self.settings["fraction-train"])))  # as Flower rounds

    @property
    def local_steps(self) -> int:
        """Steps of SGD in a round."""
        return int(self.settings["local-steps"])

    @property
    def rounds(self) -> int:
        """Rounds for the iterations asked for, rounded up."""
        return math.ceil(int(self.settings["iterations"]) / self.local_steps)

    @property
    def work(self) -> int:
        """A number in proportion to the time that the run takes, roughly: a message costs about as much as three steps."""
        return self.rounds * self.clients_per_round * (self.local_steps + 3)

    def config(self) -> dict[str, Value]:
        """Return the run config for the Flower app, folders apart."""
        config = {key: value for key, value in self.settings.items() if key not in OWN}
        if "clients-per-round" in self.settings:
            # Flower rounds down; half a client more keeps clear of the rounding of floats.
            config["fraction-train"] = min(1.0, (self.clients_per_round + 0.5) / self.clients)
        evaluate_every = int(self.settings["evaluate-every"])
        return {
            **defaults(),
            **config,
            "num-rounds": self.rounds,
            "evaluate-every": max(1, round(evaluate_every / self.local_steps)),
            "fraction-evaluate": 0.0,
            "min-nodes": min(2, self.clients),
            "num-threads": 1,
        }
