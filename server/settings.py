"""The run's configuration, checked once, before anything starts.

An error is one sentence that names the setting, what it is, and what it may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, get_type_hints

import fedcomp
from fedcomp.data import parse_scheme
from server.rules import Call, Real, Rule, Switch, Text, Whole
from server.strategies import parse_strategy


class SettingsError(ValueError):
    """A run cannot start as it is configured; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One run.  The names are those of `[tool.flwr.app.config]`, with underscores; the defaults stand there alone."""

    dataset: Annotated[str, Text(r"[\w.-]+", "the name of a card in datasets/")]
    data_dir: Annotated[str, Text()]
    partition: Annotated[str, Call(parse_scheme)]
    model: Annotated[str, Text(r"\w+", "the name of a model")]
    seed: Annotated[int, Whole()]
    strategy: Annotated[str, Call(parse_strategy)]
    num_rounds: Annotated[int, Whole(1)]
    fraction_train: Annotated[float, Real(above=0, most=1)]
    sampling_decay: Annotated[float, Real(least=0)]
    fraction_evaluate: Annotated[float, Real(least=0, most=1)]
    min_nodes: Annotated[int, Whole(1)]
    local_epochs: Annotated[int, Whole(1)]
    local_steps: Annotated[int, Whole()]
    batch_size: Annotated[int, Whole(1)]
    learning_rate: Annotated[float, Real(above=0)]
    momentum: Annotated[float, Real(least=0, most=1)]
    weight_decay: Annotated[float, Real(least=0)]
    uplink: Annotated[str, Call(fedcomp.parse)]
    downlink: Annotated[str, Call(fedcomp.parse)]
    device: Annotated[str, Text(r"auto|cpu|mps|cuda(:\d+)?", "auto, cpu, cuda, cuda:<number> or mps")]
    num_threads: Annotated[int, Whole()]
    evaluate_every: Annotated[int, Whole(1)]
    runs_dir: Annotated[str, Text(".+", "a folder")]
    run_name: Annotated[str, Text(r"([\w-][\w.-]*)?", "a plain name, without folders,")]
    checkpoint_every: Annotated[int, Whole()]
    resume: Annotated[bool, Switch()]
    round_timeout: Annotated[float, Real(above=0)]
    node_timeout: Annotated[float, Real(least=0)]

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "Settings":
        """Return the settings in a run config; raise `SettingsError` for an unknown, missing or impossible one."""
        rules = _rules()
        for key in config:
            if key not in rules:
                raise SettingsError(f"unknown setting {key!r}; there are: {', '.join(sorted(rules))}")
        values: dict[str, object] = {}
        for key, rule in rules.items():
            if key not in config:
                raise SettingsError(f"setting {key!r} is missing; a run needs all of: {', '.join(sorted(rules))}")
            try:
                values[_field(key)] = rule(config[key])
            except ValueError as error:
                raise SettingsError(f"{key} is {config[key]!r}; {error}") from None
        settings = cls(**values)  # type: ignore[arg-type]
        if settings.resume and not settings.run_name:
            raise SettingsError("resume is true, but run-name is empty; the name of the run to go on with is needed")
        return settings

    def to_config(self) -> dict[str, str | int | float | bool]:
        """Return the run config that these settings are."""
        return {_key(item.name): getattr(self, item.name) for item in fields(self)}


def _rules() -> dict[str, Rule]:
    hints = get_type_hints(Settings, include_extras=True)
    return {_key(name): hint.__metadata__[0] for name, hint in hints.items()}


def _key(name: str) -> str:
    return name.replace("_", "-")


def _field(key: str) -> str:
    return key.replace("-", "_")
