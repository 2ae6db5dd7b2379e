"""What a study says, in numbers: for each setting the method that ends best, and the one that gets there cheapest.

Methods that show the same number tie, and are all named, in the order of the study.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.netshape.profiles import PROFILES
from experiments.curves import Curve, Scenario, Study
from experiments.network import format_duration, seconds
from experiments.outcome import Spread, accuracies, at_target, is_dense, spread, targets, winners
from experiments.tables import Table, fewest, highest
from experiments.words import percent
from server.progress import format_bytes

LTE = next(profile for profile in PROFILES if profile.name == "LTE")


def summary_table(study: Study, asked: Sequence[float], slowdown: float = 1.0) -> Table:
    """Return, for each scenario and target: who ends best, who needs fewest bytes, and who is soonest over LTE."""
    rows = []
    for scenario in study.scenarios:
        ends = _ends(study, scenario)
        best = " = ".join(f"{method} ({percent(ends[method])} %)" for method in best_end(study, scenario)) or "-"
        for target in targets(study, scenario, asked):
            cheap, soon = _cheapest(study, scenario, target), _soonest(study, scenario, target, slowdown)
            rows.append((study.title(scenario), best, f"{100 * target:g} %", cheap, soon))
        if not targets(study, scenario, asked):
            rows.append((study.title(scenario), best, "-", "-", "-"))
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
    winning = [best_end(study, scenario) for scenario in study.scenarios]
    if any(winning):
        said.append(f"The highest mean final accuracy: {_counted(study, winning, 'settings')}.{_clear(study)}")
    pairs = [(scenario, target) for scenario in study.scenarios for target in targets(study, scenario, asked)]
    cheapest = [[method for method, _ in _costs(study, *pair)[0]] for pair in pairs]
    if any(cheapest):
        what = "pairs of setting and target" if len(pairs) > len(study.scenarios) else "settings"
        said.append(f"The fewest bytes to the target accuracy, up and down: {_counted(study, cheapest, what)}.")
    elif pairs:
        said.append("No method reaches a target accuracy with all of its seeds.")
    else:
        said.append(
            "No target accuracy follows from the results: parts of the best final one lie no higher than the untrained model."
        )
    return said


def warnings(study: Study, cells_done: int | None = None, cells_all: int | None = None) -> list[str]:
    """Return what a reader must know before reading on, in sentences: what is missing, diverged, or has one seed."""
    said = []
    there = len({(curve.method, curve.scenario, curve.seed) for curve in study.curves})
    every = len(study.methods) * len(study.scenarios) * len({curve.seed for curve in study.curves})
    if cells_done is not None and cells_all is not None:
        if cells_done < cells_all:
            said.append(f"The study is not finished: {cells_done} of {cells_all} cells (runs) are in this report.")
    elif there < every:
        said.append(
            f"{there} of {every} runs are there, counting each method in each setting with each seed: "
            "means are over the runs that are there."
        )
    lost = [curve for curve in study.curves if not np.isfinite([curve["accuracy"][-1], curve["loss"][-1]]).all()]
    if lost:
        by = ", ".join(dict.fromkeys(curve.method for curve in lost))
        said.append(
            f"{len(lost)} of {len(study.curves)} runs end without an accuracy or a finite loss (they diverged): {by}."
        )
    if len({curve.seed for curve in study.curves}) == 1:
        said.append("There is one seed: how much of a difference is chance, this study cannot say.")
    return said


def best_end(study: Study, scenario: Scenario) -> list[str]:
    """Return the methods with the highest mean final accuracy, to the digits shown; none where there is none.

    Only methods count of which every seed has a final accuracy: a mean of the survivors would flatter.
    """
    ends = _ends(study, scenario)
    return [list(ends)[at] for at in highest(list(ends.values()))]


def _ends(study: Study, scenario: Scenario) -> dict[str, Spread]:
    return {method: accuracies(study, method, scenario, "final") for method in study.methods}


def _clear(study: Study) -> str:
    """Return in how many settings the best leads by more than the spread, as a sentence; empty with one seed each."""
    clear = []
    for scenario in study.scenarios:
        first, *rest = sorted(_ends(study, scenario).values(), key=lambda end: -end.mean if end.whole else math.inf)
        if rest and rest[0].whole and max(first.count, rest[0].count) > 1:
            clear.append(first.mean - rest[0].mean > max(first.std, rest[0].std))
    if not clear:
        return ""
    return (
        " The lead over the next is larger than the spread over seeds (the larger ± of the two) "
        f"in {sum(clear)} of {len(clear)} setting{'s' if len(clear) > 1 else ''}."
    )


def _costs(study: Study, scenario: Scenario, target: float) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Return (method, bytes up and down until the target): of the cheapest, and of all that reach it with every seed."""
    costs = []
    for method in study.methods:
        runs = study.seeds(method, scenario)
        cost = spread([at_target(run, target, run["uplink_bytes"] + run["downlink_bytes"]) for run in runs])
        if cost.whole:
            costs.append((method, cost.mean))
    return [costs[at] for at in fewest([cost for _, cost in costs])], costs


def _cheapest(study: Study, scenario: Scenario, target: float) -> str:
    """Return the methods with the fewest bytes, and how many times fewer than the cheapest that sends dense up."""
    cheap, costs = _costs(study, scenario, target)
    if not cheap:
        return "-"
    names, size = [method for method, _ in cheap], cheap[0][1]
    dense = {run.method for run in study.curves if is_dense(run)}
    beside = min((one for one in costs if one[0] in dense), key=lambda one: one[1], default=None)
    said = f"{' = '.join(names)} ({format_bytes(size)}"
    if beside is not None and beside[0] not in names and size > 0:
        said += f"; {beside[1] / size:.1f} times fewer than {beside[0]}"
    return f"{said})"


def _soonest(study: Study, scenario: Scenario, target: float, slowdown: float) -> str:
    def time(run: Curve) -> float:
        return at_target(run, target, seconds(run.measured, LTE, slowdown))

    times = [spread([time(run) for run in study.seeds(method, scenario)]) for method in study.methods]
    means = [time.mean if time.whole else math.nan for time in times]
    first = winners([(mean, format_duration(mean)) for mean in means])
    return f"{' = '.join(study.methods[at] for at in first)} ({format_duration(means[first[0]])})" if first else "-"


def _counted(study: Study, winning: Sequence[Sequence[str]], what: str) -> str:
    """Return how often each method is among the winners, the most often first, then in the order of the study."""
    counter = Counter(method for methods in winning for method in methods)
    order = sorted(counter, key=lambda method: (-counter[method], study.methods.index(method)))
    if len(winning) == 1:
        return " = ".join(order)
    ties = " (who ties counts)" if any(len(methods) > 1 for methods in winning) else ""
    return f"of {len(winning)} {what}{ties}, " + "; ".join(f"{method} in {counter[method]}" for method in order)
