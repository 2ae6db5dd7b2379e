"""The settings of one cell, and the run config of the Flower app that follows from them."""

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
STUDY_SETTINGS = ("clients", "clients-per-round", "iterations", "evaluate-every")
"""Settings that only a study has, or that mean something else in the app."""
FIXED = frozenset(
    {
        "num-rounds", "runs-dir", "run-name", "checkpoint-every", "resume", "min-nodes", "data-dir", "node-timeout",
        "round-timeout", "fraction-evaluate", "num-threads", "local-epochs", "mode", "split", "split-layer",
    }
)  # fmt: skip
"""Settings of the app that a study decides by itself."""
ALWAYS_NAMED = frozenset(
    {
        "dataset", "partition", "model", "seed", "strategy", "fraction-train", "sampling-decay", "batch-size", "local-steps",
        "learning-rate", "momentum", "weight-decay", "uplink", "downlink", *STUDY_SETTINGS,
    }
)  # fmt: skip
"""Settings that are always part of a cell's name. A setting that the app gains later is part of it only where it differs
from its default, so that older results are still found. The device never is."""

Value = str | int | float | bool


@cache
def defaults() -> Mapping[str, Value]:
    """Return the app's default run config."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return MappingProxyType(table["tool"]["flwr"]["app"]["config"])


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: the method's `label`, and all settings by their names in the study file."""

    label: str
    settings: Mapping[str, Value] = field(hash=False)

    @property
    def name(self) -> str:
        """Twelve hexadecimal digits that identify the label and the settings."""
        unused = {"device"} | ({"fraction-train"} if "clients-per-round" in self.settings else set())
        named = {
            key: value
            for key, value in self.settings.items()
            if key not in unused and (key in ALWAYS_NAMED or value != defaults().get(key))
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
        return max(1, int(self.clients * float(self.settings["fraction-train"])))  # Flower rounds down too

    @property
    def local_steps(self) -> int:
        """SGD steps of a node in a round."""
        return int(self.settings["local-steps"])

    @property
    def rounds(self) -> int:
        """The number of rounds that the iterations need, rounded up."""
        return math.ceil(int(self.settings["iterations"]) / self.local_steps)

    @property
    def work(self) -> int:
        """A number roughly proportional to the run's duration: a message costs about as much as three steps."""
        return self.rounds * self.clients_per_round * (self.local_steps + 3)

    def config(self) -> dict[str, Value]:
        """Return the run config for the Flower app, except for the folders."""
        config = {key: value for key, value in self.settings.items() if key not in STUDY_SETTINGS}
        if "clients-per-round" in self.settings:
            # Flower rounds down; half a client more keeps clear of floating-point rounding.
            config["fraction-train"] = min(1.0, (self.clients_per_round + 0.5) / self.clients)
        return {
            **defaults(),
            **config,
            "num-rounds": self.rounds,
            "evaluate-every": max(1, round(int(self.settings["evaluate-every"]) / self.local_steps)),
            "fraction-evaluate": 0.0,
            "min-nodes": min(2, self.clients),
            "num-threads": 1,
        }
