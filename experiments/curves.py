"""A study's table read as curves: a cell each, told apart by method, by scenario and by seed.

A scenario is what the nodes are given: data, their spread, how many take part.  Whether another setting (local steps, the
learning rate) belongs to the method or to the scenario shows in the table: it is swept where one method has several values
of it in the same scenario.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.axes import Axis, Value, column_axis, partition_axes
from experiments.results import DTYPES

GIVEN = ("dataset", "model", "partition", "participation", "clients", "batch_size")
"""What a study gives to all methods alike: swept where it takes several values at all.

Of those that go together one to one, as five of ever more clients do, the first alone is swept.
"""
CHOSEN = ("local_steps", "learning_rate", "momentum", "strategy", "uplink", "downlink")
"""What a method may choose for itself: swept where it varies within one method and scenario."""
MEASURED = tuple(name for name in DTYPES if name not in ("cell", "method", "seed", *GIVEN, *CHOSEN))

Scenario = tuple[Value, ...]
"""A value for each of a study's axes."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One cell: its settings, and its measurements by evaluated round, in order."""

    method: str
    seed: int
    scenario: Scenario
    settings: Mapping[str, Value]
    measured: Mapping[str, NDArray[np.float64]]

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """Return a measured column: shape (evaluated rounds,), float64, NaN where there is no value."""
        return self.measured[column]


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The curves of a study, with its methods in the order of the table, its axes, and the scenarios that there are."""

    curves: tuple[Curve, ...]
    methods: tuple[str, ...]
    axes: tuple[Axis, ...]
    scenarios: tuple[Scenario, ...]

    def seeds(self, method: str, scenario: Scenario) -> tuple[Curve, ...]:
        """Return the curves of a method in a scenario, one for each seed; empty where none has been run."""
        return tuple(curve for curve in self.curves if curve.method == method and curve.scenario == scenario)

    def title(self, scenario: Scenario, without: Axis | None = None) -> str:
        """Return a scenario in words, as "classes per client: 2, batch size: 20"; empty for a study with no axes."""
        pairs = zip(self.axes, scenario, strict=True)
        return ", ".join(axis.show(value) for axis, value in pairs if axis is not without)

    def rests(self, axis: Axis) -> list[Scenario]:
        """Return the values of the other axes that stand beside `axis` in some scenario, each once, in order."""
        there = {self._rest(axis, scenario) for scenario in self.scenarios}
        return [one for one in product(*(other.values for other in self.axes if other is not axis)) if one in there]

    def along(self, axis: Axis, rest: Scenario) -> dict[Value, Scenario]:
        """Return value of `axis` -> scenario, of those whose other values are `rest`."""
        at = self.axes.index(axis)
        return {one[at]: one for one in self.scenarios if self._rest(axis, one) == rest}

    def _rest(self, axis: Axis, scenario: Scenario) -> Scenario:
        at = self.axes.index(axis)
        return scenario[:at] + scenario[at + 1 :]

    def setting(self, method: str, column: str) -> str:
        """Return a setting of a method: its value, or its values where the study has several."""
        values = dict.fromkeys(curve.settings[column] for curve in self.curves if curve.method == method)
        return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def read(frame: pd.DataFrame) -> Study:
    """Return the curves of a frame of results.  Raises `ValueError` for one without a row."""
    if len(frame) == 0:
        raise ValueError("the table of results has no row; at least one finished cell is needed")
    parts = [part.sort_values("round") for _, part in frame.groupby("cell", sort=False)]
    heads = [{name: _plain(part[name].iloc[0]) for name in ("method", "seed", *GIVEN, *CHOSEN)} for part in parts]
    axes = _axes(heads)
    curves = tuple(
        Curve(
            method=str(head["method"]),
            seed=int(head["seed"]),
            scenario=tuple(axis.read(head[axis.column]) for axis in axes),
            settings=head,
            measured={name: part[name].to_numpy(np.float64) for name in MEASURED},
        )
        for head, part in zip(heads, parts, strict=True)
    )
    there = {curve.scenario for curve in curves}
    scenarios = sorted(there, key=lambda one: [axis.values.index(value) for axis, value in zip(axes, one, strict=True)])
    return Study(curves, tuple(dict.fromkeys(curve.method for curve in curves)), axes, tuple(scenarios))


def _axes(heads: list[dict[str, Value]]) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    swept: list[str] = []
    for column in GIVEN:
        values = list(dict.fromkeys(head[column] for head in heads))
        if len(values) == 1 or any(_go_together(heads, column, other) for other in swept):
            continue
        swept.append(column)
        if column == "partition":
            axes += partition_axes([str(value) for value in values])
        else:
            axes.append(column_axis(column, values))
    for column in CHOSEN:
        within: dict[tuple[Value, ...], set[Value]] = {}
        for head in heads:
            within.setdefault((head["method"], *(head[name] for name in GIVEN)), set()).add(head[column])
        if any(len(values) > 1 for values in within.values()):
            axes.append(column_axis(column, list(dict.fromkeys(head[column] for head in heads))))
    return tuple(axes)


def _go_together(heads: list[dict[str, Value]], column: str, other: str) -> bool:
    """Return whether two columns map one to one: each value of one stands with one value of the other alone."""
    pairs = {(head[column], head[other]) for head in heads}
    return len(pairs) == len({one for one, _ in pairs}) == len({one for _, one in pairs})


def _plain(value: object) -> Value:
    return value.item() if isinstance(value, np.generic) else str(value)
