"""The findings of a study in numbers: for each setting the method that ends best, and the one that gets there cheapest.

Methods that show the same number tie, and are all named, in the order of the study.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.network import format_duration
from experiments.study import Study, is_dense, spread
from experiments.table import Table
from experiments.tables import TARGET_KEYS, best_ends, best_methods, by_setting, megabytes, percent
from fedcomp.core import format_bytes


def summary_table(study: Study) -> Table:
    """Return for each scenario and target: the best final accuracy, the fewest bytes, and the shortest time over LTE."""
    ends = spread(study.runs, "final")
    sent, seconds = (spread(study.reached, column, TARGET_KEYS) for column in ("traffic_bytes", "LTE"))
    best, cheapest, soonest = best_ends(ends), best_methods(sent, megabytes), best_methods(seconds, format_duration)
    costs, times = _by_goal(sent), _by_goal(seconds)
    rows = []
    for scenario, goals in study.targets.items():
        winners = (f"{method} ({percent(ends.loc[(scenario, method)])} %)" for method in best.get(scenario, ()))
        end = " = ".join(winners) or "-"
        for goal in goals:
            cheap = soon = "-"
            if methods := cheapest.get((scenario, goal)):
                cheap = _cheapest(study, costs[scenario, goal], methods)
            if methods := soonest.get((scenario, goal)):
                time = times[scenario, goal].loc[methods[0], "mean"]
                soon = f"{' = '.join(methods)} ({format_duration(time)})"
            rows.append((scenario, end, f"{100 * goal:g} %", cheap, soon))
        if not goals:
            rows.append((scenario, end, "-", "-", "-"))
    return by_setting(
        study,
        "For each setting: the highest mean final accuracy; and of the methods that reach the target with every seed, the "
        "one with the fewest bytes, up and down together, and the fastest over LTE. A lead smaller than the spread over "
        "seeds (±) may be chance.",
        ("setting", "best final accuracy", "target", "fewest bytes to the target", "fastest over LTE"),
        rows,
    )


def _by_goal(values: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """Return the rows of a `spread` by (scenario, target), with the method as their index."""
    groups = values.groupby(level=["scenario", "target"], observed=True, sort=False)
    return {key: group.droplevel(["scenario", "target"]) for key, group in groups}


def sentences(study: Study) -> list[str]:
    """Return how often each method was the best, in sentences."""
    found = []
    ends = spread(study.runs, "final")
    if best := best_ends(ends):
        counted = _counted(study, list(best.values()), len(study.scenarios), "settings")
        found.append(f"The highest mean final accuracy: {counted}.{_clear(ends)}")
    goals = sum(len(goals) for goals in study.targets.values())
    if cheapest := best_methods(spread(study.reached, "traffic_bytes", TARGET_KEYS), megabytes):
        noun = "pairs of setting and target" if goals > len(study.scenarios) else "settings"
        counted = _counted(study, list(cheapest.values()), goals, noun)
        found.append(f"The fewest bytes to the target accuracy, up and down: {counted}.")
    elif goals:
        found.append("No method reaches a target accuracy with all of its seeds.")
    else:
        found.append(
            "The results give no target accuracy: no fraction of the best final one exceeds the untrained model's."
        )
    return found


def warnings(study: Study, cells_done: int | None = None, cells_all: int | None = None) -> list[str]:
    """Return what a reader must know first, in sentences: runs that are missing, diverged, or have a single seed."""
    found = []
    runs = study.runs
    done = len(runs.drop_duplicates(["method", "scenario", "seed"]))
    everything = len(study.methods) * len(study.scenarios) * runs["seed"].nunique()
    if cells_done is not None and cells_all is not None:
        if cells_done < cells_all:
            found.append(f"The study is not finished: {cells_done} of {cells_all} cells (runs) are in this report.")
    elif done < everything:
        found.append(
            f"{done} of {everything} runs are present, counting each method in each setting with each seed: "
            "means are over those."
        )
    diverged = runs[~np.isfinite(runs[["final", "loss"]]).all(axis=1)]
    if len(diverged):
        methods = ", ".join(str(method) for method in diverged["method"].drop_duplicates().sort_values())
        found.append(
            f"{len(diverged)} of {len(runs)} runs end without an accuracy or a finite loss (they diverged): {methods}."
        )
    if not study.has_seeds:
        found.append("There is one seed, so this study cannot say which differences are chance.")
    return found


def _clear(ends: pd.DataFrame) -> str:
    """Return in how many settings the best method leads by more than the spread; empty with one seed each."""
    clear = []
    for _, group in ends.groupby(level="scenario", observed=True):
        order = group[group["whole"]].sort_values("mean", ascending=False, kind="stable").head(2)
        if len(order) > 1 and order["count"].max() > 1:
            clear.append(order["mean"].iloc[0] - order["mean"].iloc[1] > order["std"].max())
    if not clear:
        return ""
    return (
        " The lead over the next method exceeds the spread over seeds (the larger ± of the two) "
        f"in {sum(clear)} of {len(clear)} setting{'s' if len(clear) > 1 else ''}."
    )


def _cheapest(study: Study, costs: pd.DataFrame, methods: Sequence[str]) -> str:
    """Return the methods with the fewest bytes, and the factor by which the cheapest dense method needs more."""
    size = costs.loc[methods[0], "mean"]
    dense = study.runs.loc[is_dense(study.runs), "method"].unique()
    others = costs[costs["whole"] & costs.index.isin(dense)]
    text = f"{' = '.join(methods)} ({format_bytes(size)}"
    if len(others) and size > 0 and (cheapest := others["mean"].idxmin()) not in methods:
        text += f"; {others.loc[cheapest, 'mean'] / size:.1f} times fewer than {cheapest}"
    return f"{text})"


def _counted(study: Study, winning: Sequence[Sequence[str]], count: int, noun: str) -> str:
    """Return how often each method is among the winners, the most frequent first, then in the order of the study."""
    counter = Counter(method for methods in winning for method in methods)
    order = sorted(counter, key=lambda method: (-counter[method], study.methods.index(method)))
    if count == 1:
        return " = ".join(order)
    ties = " (ties count for each)" if any(len(methods) > 1 for methods in winning) else ""
    return f"of {count} {noun}{ties}, " + "; ".join(f"{method} in {counter[method]}" for method in order)
