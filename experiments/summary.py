"""The findings of a study in numbers: for each setting the method that ends best, and the one that gets there cheapest.

Methods that show the same number tie, and are all named, in the order of the study.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.netshape.profiles import BY_WORD
from experiments.network import format_duration, network_seconds
from experiments.study import Study, is_dense, reached, spread, targets
from experiments.tables import Table, best_cells, megabytes, percent
from experiments.target_tables import TARGET_KEYS
from server.progress import format_bytes

LTE = BY_WORD["lte"]


def summary_table(study: Study, given: Sequence[float], slowdown: float = 1.0) -> Table:
    """Return for each scenario and target: the best final accuracy, the fewest bytes, and the shortest time over LTE."""
    ends = spread(study.runs, "final")
    best: dict[object, list[Any]] = {scenario: [] for scenario in study.scenarios} | _by_group(_best_ends(ends))
    runs = reached(study, given)
    bytes_needed = spread(runs.assign(both=runs["uplink_bytes"] + runs["downlink_bytes"]), "both", TARGET_KEYS)
    seconds = spread(runs.assign(time=network_seconds(runs, LTE, slowdown)), "time", TARGET_KEYS)
    cheapest, soonest = _by_group(best_cells(bytes_needed, megabytes)), _by_group(best_cells(seconds, format_duration))
    rows = []
    for scenario, goals in targets(study, given).items():
        end = " = ".join(f"{method} ({percent(ends.loc[(scenario, method)])} %)" for method in best[scenario]) or "-"
        for goal in goals:
            cheap, soon = cheapest.get((scenario, goal)), soonest.get((scenario, goal))
            rows.append(
                (
                    scenario,
                    end,
                    f"{100 * goal:g} %",
                    _cheapest(study, bytes_needed.loc[(scenario, goal)], cheap) if cheap else "-",
                    f"{' = '.join(soon)} ({format_duration(seconds.loc[(scenario, goal, soon[0]), 'mean'])})"
                    if soon
                    else "-",
                )
            )
        if not goals:
            rows.append((scenario, end, "-", "-", "-"))
    table = Table(
        "For each setting: the highest mean final accuracy; and of the methods that reach the target with every seed, the "
        "one with the fewest bytes, up and down together, and the fastest over LTE. A lead smaller than the spread over "
        "seeds (±) may be chance.",
        ("setting", "best final accuracy", "target", "fewest bytes to the target", "fastest over LTE"),
        tuple(rows),
    )
    return table if study.axes else table.without_first_column()


def sentences(study: Study, given: Sequence[float]) -> list[str]:
    """Return how often each method was the best, in sentences."""
    found = []
    ends = spread(study.runs, "final")
    if winning := _by_group(_best_ends(ends)):
        counted = _counted(study, list(winning.values()), len(study.scenarios), "settings")
        found.append(f"The highest mean final accuracy: {counted}.{_clear(ends)}")
    runs = reached(study, given)
    bytes_needed = spread(runs.assign(both=runs["uplink_bytes"] + runs["downlink_bytes"]), "both", TARGET_KEYS)
    goals = sum(len(goals) for goals in targets(study, given).values())
    if cheapest := _by_group(best_cells(bytes_needed, megabytes)):
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


def _best_ends(ends: pd.DataFrame) -> list[tuple[object, ...]]:
    return best_cells(ends, lambda mean: f"{100 * mean:.1f}", highest=True)


def _by_group(keys: Sequence[tuple[object, ...]]) -> dict[object, list[str]]:
    """Return the methods, the last part of each key, by the rest of the key."""
    found: dict[object, list[str]] = {}
    for *group, method in keys:
        found.setdefault(group[0] if len(group) == 1 else tuple(group), []).append(str(method))
    return found


def _clear(ends: pd.DataFrame) -> str:
    """Return in how many settings the best method leads by more than the spread; empty with one seed each."""
    clear = []
    for _, group in ends.groupby(level="scenario", observed=True):
        order = group[group["whole"]].sort_values("mean", ascending=False, kind="stable")
        if len(order) > 1 and order["count"].iloc[:2].max() > 1:
            first, second = order.iloc[0], order.iloc[1]
            clear.append(first["mean"] - second["mean"] > max(first["std"], second["std"]))
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
