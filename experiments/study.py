"""A table of results, read as a study: what was swept, how well each run ended, and what it needed to reach a target.

A scenario is what the nodes are given: the data, their partition, the participation. Another setting, such as the local
steps or the learning rate, is swept only if one method has several values of it in the same scenario; otherwise it belongs
to the method.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from experiments.axes import Axis, Value, column_axis, partition_axes
from experiments.results import MEASURED
from fedcomp.core import parse_call

GIVEN = ("dataset", "model", "partition", "participation", "clients", "batch_size")
"""Settings that a study gives to all methods alike: swept if they have several values at all.

Of several that change together one to one, as five of ever more clients do, only the first is swept.
"""
CHOSEN = ("local_steps", "learning_rate", "momentum", "strategy", "weighting", "uplink", "downlink")
"""Settings that a method may choose: swept if they vary within one method and scenario."""
TARGET_SHARES = (0.9, 0.95)
"""The target accuracies of a study that names none, as fractions of the best final accuracy of a dense method."""

Measure = Literal["final", "best"]
"""The accuracy of a run: that of its last evaluation, or the highest of all."""


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The results of a study.

    `table` has a row for each evaluation, with the columns of `results.COLUMNS`, "scenario", and the name of each axis.
    `runs` has a row for each cell: the last row of `table`, and the accuracies "final" and "best". Both are sorted by
    scenario, method and seed. "method" and "scenario" are categories, in the order of the study; a scenario is a text, such
    as "classes per client: 2, batch size: 20".
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    axes: tuple[Axis, ...]
    scenarios: dict[str, tuple[Value, ...]]
    """Scenario -> its value on each axis."""

    @property
    def methods(self) -> list[str]:
        """The labels of the methods."""
        return list(self.table["method"].cat.categories)

    @property
    def has_seeds(self) -> bool:
        """Whether there is more than one seed."""
        return bool(self.runs["seed"].nunique() > 1)

    def split(self, axis: Axis) -> dict[str, list[str]]:
        """Return the scenarios that differ only along `axis`, by what they have in common."""
        at = self.axes.index(axis)
        others = [other for other in self.axes if other is not axis]
        found: dict[str, list[str]] = {}
        rests = {scenario: values[:at] + values[at + 1 :] for scenario, values in self.scenarios.items()}
        for scenario in sorted(rests, key=lambda scenario: _position(others, rests[scenario])):
            common = ", ".join(other.show(value) for other, value in zip(others, rests[scenario], strict=True))
            found.setdefault(common, []).append(scenario)
        return found

    def setting(self, method: str, column: str) -> str:
        """Return a setting of a method: its value, or all of its values."""
        values = self.runs.loc[self.runs["method"] == method, column].unique()
        return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def read_study(table: pd.DataFrame) -> Study:
    """Return the study in a table of results. Raises `ValueError` for a table without rows."""
    if table.empty:
        raise ValueError("the table of results has no rows; at least one finished cell is needed")
    methods = list(table["method"].unique())
    axes = _axes(table.drop_duplicates("cell"))
    table = table.assign(**{axis.name: [axis.read(value) for value in table[axis.column]] for axis in axes})
    points = list(zip(*(table[axis.name] for axis in axes), strict=True)) or [()] * len(table)
    scenarios = {_title(axes, point): point for point in sorted(set(points), key=lambda one: _position(axes, one))}
    table = table.assign(
        method=pd.Categorical(table["method"], methods),
        scenario=pd.Categorical([_title(axes, point) for point in points], list(scenarios)),
    ).sort_values(["scenario", "method", "seed", "cell", "round"])
    groups = table.groupby("cell", sort=False)
    runs = groups.tail(1).set_index("cell")
    return Study(table, runs.assign(final=runs["accuracy"], best=groups["accuracy"].max()), axes, scenarios)


def spread(runs: pd.DataFrame, column: str, by: Sequence[str] = ("scenario", "method")) -> pd.DataFrame:
    """Return the statistics of a number over the seeds of each group, with a row for each group.

    The columns are mean, std (of a sample, n - 1; 0 for one seed), low, high, count (the seeds with a number), of (all
    seeds) and whole (whether every seed has a number: the mean of the survivors alone must win nothing).
    """
    groups = runs.groupby(list(by), observed=True, sort=False)[column]
    found = groups.agg(mean="mean", std="std", low="min", high="max", count="count", of="size")
    return found.assign(std=found["std"].fillna(0), whole=found["count"] == found["of"])


def targets(study: Study, given: Sequence[float] = ()) -> dict[str, tuple[float, ...]]:
    """Return the target accuracies of each scenario, 0 to 1: the `given` ones, or `TARGET_SHARES` of the best.

    The best is the highest mean final accuracy of the dense methods, or of all methods if no dense one counts. Only methods
    count whose every seed has an end. Targets are rounded down to whole percent, and lie above every accuracy of an
    untrained model: there may be none.
    """
    return {scenario: tuple(dict.fromkeys(given)) or _derived(study, scenario) for scenario in study.scenarios}


def _derived(study: Study, scenario: str) -> tuple[float, ...]:
    runs = study.runs[study.runs["scenario"] == scenario]
    ends = spread(runs, "final", ["method"])
    means = ends.loc[ends["whole"], "mean"]
    dense = means[means.index.isin(runs.loc[is_dense(runs), "method"])]
    best = max(dense if len(dense) else means, default=0.0)
    untrained = study.table.loc[(study.table["scenario"] == scenario) & (study.table["round"] == 0), "accuracy"]
    derived = dict.fromkeys(np.floor(100 * share * best + 1e-9) / 100 for share in TARGET_SHARES)
    return tuple(float(target) for target in derived if target > max(untrained.dropna(), default=0.0))


def reached(study: Study, given: Sequence[float] = ()) -> pd.DataFrame:
    """Return what each run had measured when it first reached each target, NaN where it never did.

    There is a row for each run and target, with the settings of `Study.runs`, "target", and the measured columns at the
    first evaluation with at least that accuracy. Round 0 does not count: an untrained model says nothing about a method.
    """
    parts = []
    for scenario, goals in targets(study, given).items():
        table = study.table[(study.table["scenario"] == scenario) & (study.table["round"] > 0)]
        runs = study.runs[study.runs["scenario"] == scenario].drop(columns=list(MEASURED))
        for goal in goals:
            hits = table[table["accuracy"] >= goal].drop_duplicates("cell").set_index("cell")[list(MEASURED)]
            parts.append(runs.join(hits).assign(target=goal))
    return pd.concat(parts) if parts else study.runs.head(0).assign(target=0.0)


def is_dense(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return which runs' nodes send their updates uncompressed."""
    return runs["uplink"].map(lambda uplink: parse_call(uplink)[0] == "dense")


def dense_ratio(runs: pd.DataFrame, *sides: str) -> float:
    """Return the bytes that plain Flower would have sent over those sent, over all `runs`; 0 if nothing was sent.

    `sides` are "uplink" and "downlink".
    """
    dense, sent = (sum(runs[f"{kind}{side}_bytes"].sum() for side in sides) for kind in ("dense_", ""))
    return float(dense / sent) if sent else 0.0


def winners(numbers: Sequence[float], texts: Sequence[str], *, highest: bool = False) -> list[int]:
    """Return the positions of the lowest of some numbers, or the highest; all that show the same text tie.

    NaN wins nothing.
    """
    present = [(number, text) for number, text in zip(numbers, texts, strict=True) if number == number]
    if not present:
        return []
    best = (max if highest else min)(present, key=lambda pair: pair[0])[1]
    return [at for at, text in enumerate(texts) if text == best and numbers[at] == numbers[at]]


def pareto_front(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows on the Pareto front of the columns "sent" and "mean": none has as little sent and a higher mean.

    Rows with NaN are on no front; of equal points the first is. The rows are in ascending order of "sent".
    """
    order = points.dropna(subset=["sent", "mean"]).sort_values(["sent", "mean"], ascending=[True, False], kind="stable")
    return order[order["mean"] > order["mean"].astype(float).cummax().shift(fill_value=-np.inf)]


def _axes(cells: pd.DataFrame) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    swept: list[str] = []
    for column in GIVEN:
        if cells[column].nunique() == 1 or any(_one_to_one(cells, column, other) for other in swept):
            continue
        swept.append(column)
        axes += (
            partition_axes([str(value) for value in _values(cells, column)])
            if column == "partition"
            else [column_axis(column, _values(cells, column))]
        )
    for column in CHOSEN:
        if (cells.groupby(["method", *GIVEN])[column].nunique() > 1).any():
            axes.append(column_axis(column, _values(cells, column)))
    return tuple(axes)


def _values(cells: pd.DataFrame, column: str) -> list[Value]:
    return list(cells[column].drop_duplicates().tolist())


def _one_to_one(cells: pd.DataFrame, column: str, other: str) -> bool:
    pairs = cells[[column, other]].drop_duplicates()
    return bool(len(pairs) == pairs[column].nunique() == pairs[other].nunique())


def _position(axes: Sequence[Axis], point: Sequence[Value]) -> list[int]:
    return [axis.values.index(value) for axis, value in zip(axes, point, strict=True)]


def _title(axes: Sequence[Axis], point: Sequence[Value]) -> str:
    return ", ".join(axis.show(value) for axis, value in zip(axes, point, strict=True))
