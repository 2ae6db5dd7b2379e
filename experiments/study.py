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

from benchmarks.netshape.profiles import PROFILES
from experiments.axes import Axis, Value, column_axis, partition_axes
from experiments.network import network_seconds
from experiments.results import MEASURED
from fedcomp.core import parse_call

GIVEN = ("dataset", "model", "partition", "participation", "clients", "batch_size")
"""Settings that a study gives to all methods alike: swept if they have several values at all.

Of several that change together one to one, as five of ever more clients do, only the first is swept.
"""
CHOSEN = (
    "local_steps", "learning_rate", "learning_rate_schedule", "optimizer", "momentum", "client_momentum", "training",
    "strategy", "weighting", "uplink", "downlink",
)  # fmt: skip
"""Settings that a method may choose: swept if they vary within one method and scenario."""
TUNED_LAST = tuple(sorted(CHOSEN, key=lambda name: name == "learning_rate"))
"""The same, with the learning rate at the end: one that is tuned for each value of another setting is not swept."""
TARGET_SHARES = (0.9, 0.95)
"""The target accuracies of a study that names none, as fractions of a best final accuracy (see `read_study`)."""

Measure = Literal["final", "best"]
"""The accuracy of a run: that of its last evaluation, or the highest of all after a round."""


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The results of a study.

    `table` has a row for each evaluation, with the columns of `results.COLUMNS`, "traffic_bytes" (up and down), the seconds
    over each network of `PROFILES` by its name, "scenario", and the name of each axis. `runs` has a row for each cell: the
    last row of `table`, and the accuracies "final" and "best". Both are sorted by scenario, method and seed. `reached` has a
    row for each run and target: the settings, "target", and the numbers at the first evaluation with at least that accuracy,
    NaN where there is none. Round 0 does not count: an untrained model says nothing about a method.

    "method" and "scenario" are categories, in the order of the study; a scenario is a text, such as "classes per client: 2,
    batch size: 20".
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    reached: pd.DataFrame
    axes: tuple[Axis, ...]
    scenarios: dict[str, tuple[Value, ...]]
    """Scenario -> its value on each axis."""
    targets: dict[str, tuple[float, ...]]
    """Scenario -> its target accuracies, 0 to 1."""
    given: tuple[float, ...]
    """The targets that were given; if there are none, they follow from the results."""

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
        others = self.axes[:at] + self.axes[at + 1 :]
        rests = {scenario: values[:at] + values[at + 1 :] for scenario, values in self.scenarios.items()}
        found: dict[str, list[str]] = {}
        for scenario in sorted(rests, key=lambda scenario: _position(others, rests[scenario])):
            found.setdefault(_title(others, rests[scenario]), []).append(scenario)
        return found


def read_study(table: pd.DataFrame, given: Sequence[float] = (), slowdown: float = 1.0) -> Study:
    """Return the study in a table of results.

    `given` are target accuracies, 0 to 1. Without any, those of a scenario are `TARGET_SHARES` of the highest mean final
    accuracy of the dense methods, or of all methods if no dense one counts. Only methods count that have an end for every seed
    of the scenario.
    Such targets are rounded down to whole percent, and exceed every accuracy of an untrained model: there may be none. A
    node computes `slowdown` times slower than the study's machine.

    Raises `ValueError` for a table without rows, for one with two cells of a method and a seed in one setting, a target outside
    (0, 1], and a slowdown that is not above 0 or not finite.
    """
    for target in given:
        if not 0 < target <= 1:
            raise ValueError(f"target accuracy {target:g}; a number above 0 and at most 1 is needed")
    if table.empty:
        raise ValueError("the table of results has no rows; at least one finished cell is needed")
    methods = list(table["method"].unique())
    axes = _axes(table.drop_duplicates("cell"))
    table = table.assign(
        **{axis.name: [axis.read(value) for value in table[axis.column]] for axis in axes},
        **{profile.name: network_seconds(table, profile, slowdown) for profile in PROFILES},
        traffic_bytes=table["uplink_bytes"] + table["downlink_bytes"],
    )
    points = list(zip(*(table[axis.name] for axis in axes), strict=True)) or [()] * len(table)
    scenarios = {_title(axes, point): point for point in sorted(set(points), key=lambda one: _position(axes, one))}
    table = table.assign(
        method=pd.Categorical(table["method"], methods),
        scenario=pd.Categorical([_title(axes, point) for point in points], list(scenarios)),
    ).sort_values(["scenario", "method", "seed", "cell", "round"])
    groups = table.groupby("cell", sort=False)
    runs = groups.tail(1).set_index("cell")
    trained = table[table["round"] > 0].groupby("cell")["accuracy"]
    runs = runs.assign(final=runs["accuracy"], best=trained.max())
    _check_alone(runs)
    given = tuple(dict.fromkeys(given))
    targets = {scenario: given or _derived_targets(table, runs, scenario) for scenario in scenarios}
    return Study(table, runs, _reached(table, runs, targets), axes, scenarios, targets, given)


def _check_alone(runs: pd.DataFrame) -> None:
    """Raise `ValueError` if two cells of a method are in one setting with one seed: they would count as two seeds."""
    twice = runs[runs.duplicated(["scenario", "method", "seed"], keep=False)]
    if len(twice):
        (first, second), run = twice.index[:2], twice.iloc[0]
        raise ValueError(
            f"cells {first} and {second} are both {run['method']} with seed {run['seed']} in one setting, as after a change of "
            "the study file; `fedcomp study` with that file reports its own cells alone"
        )


def spread(runs: pd.DataFrame, column: str, by: Sequence[str] = ("scenario", "method")) -> pd.DataFrame:
    """Return the statistics of a number over the seeds of each group, with a row for each group.

    The columns are mean, std (of a sample, n - 1; 0 for one seed), low, high, count (the seeds with a number), of (the
    different seeds of all methods in the same scenario) and whole (whether each of these has a number). A mean over some of
    the seeds must win nothing.
    """
    runs = runs.assign(of=runs.groupby("scenario", observed=True)["seed"].transform("nunique"))
    groups = runs.groupby(list(by), observed=True, sort=False)
    found = groups[column].agg(mean="mean", std="std", low="min", high="max", count="count").join(groups["of"].first())
    return found.assign(std=found["std"].fillna(0), whole=found["count"] == found["of"])


def is_dense(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return which runs' nodes send their updates uncompressed."""
    return runs["uplink"].map(lambda uplink: parse_call(uplink)[0] == "dense")


def pareto_front(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows on the Pareto front of the columns "sent" and "mean": none has as little sent and a higher mean.

    Rows with NaN are on no front; of equal points the first is. The rows are in ascending order of "sent".
    """
    order = points.dropna(subset=["sent", "mean"]).sort_values(["sent", "mean"], ascending=[True, False], kind="stable")
    return order[order["mean"] > order["mean"].astype(float).cummax().shift(fill_value=-np.inf)]


def _derived_targets(table: pd.DataFrame, runs: pd.DataFrame, scenario: str) -> tuple[float, ...]:
    runs = runs[runs["scenario"] == scenario]
    ends = spread(runs, "final", ["method"])
    means = ends.loc[ends["whole"], "mean"]
    dense = means[means.index.isin(runs.loc[is_dense(runs), "method"])]
    best = max(dense if len(dense) else means, default=0.0)
    untrained = table.loc[(table["scenario"] == scenario) & (table["round"] == 0), "accuracy"]
    derived = dict.fromkeys(np.floor(100 * share * best + 1e-9) / 100 for share in TARGET_SHARES)
    return tuple(float(target) for target in derived if target > max(untrained.dropna(), default=0.0))


def _reached(table: pd.DataFrame, runs: pd.DataFrame, targets: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    numbers = [*MEASURED, "traffic_bytes", *(profile.name for profile in PROFILES)]
    trained = table[table["round"] > 0]
    parts = [runs.head(0).assign(target=0.0)]
    for scenario, goals in targets.items():
        settings = runs[runs["scenario"] == scenario].drop(columns=numbers)
        for goal in goals:
            hits = trained[(trained["scenario"] == scenario) & (trained["accuracy"] >= goal)]
            first = hits.drop_duplicates("cell").set_index("cell")[numbers]
            parts.append(settings.join(first).assign(target=goal))
    return pd.concat(parts[1:] or parts)


def _axes(cells: pd.DataFrame) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    swept: list[str] = []
    for column in GIVEN:
        values = cells[column].drop_duplicates().tolist()
        pairs = (cells[[column, other]].drop_duplicates() for other in swept)
        if len(values) == 1 or any(len(pair) == len(values) == pair.iloc[:, 1].nunique() for pair in pairs):
            continue
        swept.append(column)
        axes += partition_axes(values) if column == "partition" else [column_axis(column, values)]
    chosen: list[str] = []
    for column in TUNED_LAST:
        if (cells.groupby(["method", *GIVEN, *chosen])[column].nunique() > 1).any():
            chosen.append(column)
    axes += [column_axis(name, cells[name].drop_duplicates().tolist()) for name in CHOSEN if name in chosen]
    return tuple(axes)


def _position(axes: Sequence[Axis], point: Sequence[Value]) -> list[int]:
    return [axis.values.index(value) for axis, value in zip(axes, point, strict=True)]


def _title(axes: Sequence[Axis], point: Sequence[Value]) -> str:
    return ", ".join(axis.show(value) for axis, value in zip(axes, point, strict=True))
