"""What a study says, in numbers: for each setting the method that ends best, and the one that gets there cheapest."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.study.curves import Scenario, Study
from benchmarks.study.network import PROFILES, format_duration, seconds
from benchmarks.study.outcome import accuracies, at_target, is_dense, spread, targets
from benchmarks.study.tables import Table
from benchmarks.study.words import percent
from server.progress import format_bytes

LTE = next(profile for profile in PROFILES if profile.name == "LTE")


def summary_table(study: Study, asked: Sequence[float], slowdown: float = 1.0) -> Table:
    """Return, for each scenario and target: who ends best, who needs fewest bytes, and who is soonest over LTE."""
    ends = {scenario: best_end(study, scenario) for scenario in study.scenarios}
    rows = [
        (
            study.title(scenario),
            "{} ({} %)".format(*ends[scenario]) if ends[scenario][0] else "-",
            f"{100 * target:g} %",
            _cheapest(study, scenario, target),
            _soonest(study, scenario, target, slowdown),
        )
        for scenario in study.scenarios
        for target in targets(study, scenario, asked)
    ]
    return Table(
        "For each setting: the highest mean final accuracy; and of the methods that reach the target with every seed, the "
        "one with the fewest bytes, up and down together, and the one that is soonest over LTE. A lead smaller than the "
        "spread over seeds (±) may be chance.",
        ("setting", "ends best", "target", "fewest bytes to the target", "soonest over LTE"),
        tuple(rows),
    )


def sentences(study: Study, asked: Sequence[float]) -> list[str]:
    """Return how often which method was the best, in sentences, each counted from the results."""
    said = []
    ends = Counter(method for scenario in study.scenarios if (method := best_end(study, scenario)[0]))
    if ends:
        said.append(f"The highest mean final accuracy: {_counted(ends, len(study.scenarios), 'settings')}.")
    pairs = [(scenario, target) for scenario in study.scenarios for target in targets(study, scenario, asked)]
    cheap = Counter(costs[0][1] for pair in pairs if (costs := _costs(study, *pair)))
    if cheap:
        what = "pairs of setting and target" if len(pairs) > len(study.scenarios) else "settings"
        said.append(f"The fewest bytes to the target accuracy, up and down: {_counted(cheap, len(pairs), what)}.")
    else:
        said.append("No method reaches a target accuracy with all of its seeds.")
    return said


def warnings(study: Study, cells_done: int | None = None, cells_all: int | None = None) -> list[str]:
    """Return what a reader must know before reading on, in sentences: what is missing, diverged, or has one seed."""
    said = []
    if cells_done is not None and cells_all is not None and cells_done < cells_all:
        said.append(f"The study is not finished: {cells_done} of {cells_all} cells (runs) are in this report.")
    lost = [curve for curve in study.curves if not np.isfinite([curve["accuracy"][-1], curve["loss"][-1]]).all()]
    if lost:
        by = ", ".join(dict.fromkeys(curve.method for curve in lost))
        said.append(
            f"{len(lost)} of {len(study.curves)} runs end without an accuracy or a finite loss (they diverged): {by}."
        )
    if len({curve.seed for curve in study.curves}) == 1:
        said.append("There is one seed: how much of a difference is chance, this study cannot say.")
    return said


def best_end(study: Study, scenario: Scenario) -> tuple[str, str]:
    """Return the method with the highest mean final accuracy, and that accuracy; empty texts where there is none.

    Only methods count of which every seed has a final accuracy: a mean of the survivors would flatter.
    """
    spreads = {method: accuracies(study, method, scenario, "final") for method in study.methods}
    whole = {method: end for method, end in spreads.items() if end.count and end.count == end.of}
    if not whole:
        return "", ""
    method = max(whole, key=lambda one: whole[one].mean)
    return method, percent(whole[method])


def _costs(study: Study, scenario: Scenario, target: float) -> list[tuple[float, str]]:
    """Return (bytes up and down until the target, method) of those that reach it with every seed, fewest first."""
    found = []
    for method in study.methods:
        runs = study.seeds(method, scenario)
        cost = spread([at_target(run, target, run["uplink_bytes"] + run["downlink_bytes"]) for run in runs])
        if cost.count and cost.count == cost.of:
            found.append((cost.mean, method))
    return sorted(found)


def _cheapest(study: Study, scenario: Scenario, target: float) -> str:
    """Return the method with the fewest bytes, and how many times fewer than the cheapest that sends dense up."""
    costs = _costs(study, scenario, target)
    if not costs:
        return "-"
    size, method = costs[0]
    dense = {run.method for run in study.curves if is_dense(run)}
    beside = next(((other, name) for other, name in costs if name in dense), None)
    said = f"{method} ({format_bytes(size)}"
    if beside is not None and beside[1] != method and size > 0:
        said += f"; {beside[0] / size:.1f} times fewer than {beside[1]}"
    return f"{said})"


def _soonest(study: Study, scenario: Scenario, target: float, slowdown: float) -> str:
    best, name = math.inf, ""
    for method in study.methods:
        runs = study.seeds(method, scenario)
        time = spread([at_target(run, target, seconds(run.measured, LTE, slowdown)) for run in runs])
        if time.count and time.count == time.of and time.mean < best:
            best, name = time.mean, method
    return f"{name} ({format_duration(best)})" if name else "-"


def _counted(counter: Counter[str], of: int, what: str) -> str:
    if of == 1:
        return next(iter(counter))
    return f"of {of} {what}, " + "; ".join(f"{method} in {count}" for method, count in counter.most_common())
