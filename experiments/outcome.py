"""What came of a method in a scenario: how well it ended, and what it took to get to a target; one value a seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.curves import Curve, Scenario, Study
from fedcomp.core import parse_call

Measure: TypeAlias = Literal["final", "best"]
"""Which accuracy of a run: that of its last evaluation, or the best of all."""

SHARES = (0.9, 0.95)
"""Where a study names no target: these parts of the best final accuracy of a method that sends dense."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, standard deviation (of the sample, n - 1), least and most of one number over seeds."""

    mean: float
    std: float
    low: float
    high: float
    count: int
    """Seeds with a number."""
    of: int
    """Seeds that were run."""

    @property
    def whole(self) -> bool:
        """Whether every seed has a number: a mean of the survivors would flatter, so it must win nothing."""
        return 0 < self.count == self.of


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of one number a seed.  NaN is a seed without one: it counts in `of` alone."""
    there = np.array([value for value in values if math.isfinite(value)])
    if len(there) == 0:
        return Spread(math.nan, math.nan, math.nan, math.nan, 0, len(values))
    std = float(there.std(ddof=1)) if len(there) > 1 else 0.0
    return Spread(float(there.mean()), std, float(there.min()), float(there.max()), len(there), len(values))


def accuracy(curve: Curve, measure: Measure) -> float:
    """Return the last or the best test accuracy of a run, 0 to 1; NaN where the last one is none, or all are."""
    values = curve["accuracy"]
    if measure == "final":
        return float(values[-1])
    return math.nan if np.isnan(values).all() else float(np.nanmax(values))


def accuracies(study: Study, method: str, scenario: Scenario, measure: Measure) -> Spread:
    """Return the accuracy of a method in a scenario over its seeds."""
    return spread([accuracy(curve, measure) for curve in study.seeds(method, scenario)])


def total_bytes(curve: Curve) -> float:
    """Return what all nodes sent and were sent in the whole run."""
    return float(curve["uplink_bytes"][-1] + curve["downlink_bytes"][-1])


def reached(curve: Curve, target: float) -> int | None:
    """Return the index of the first evaluation with at least this accuracy; None where there is none.

    Round 0 does not count: an untrained model costs nothing, and says nothing of a method.
    """
    hits = np.flatnonzero((curve["accuracy"] >= target) & (curve["round"] > 0))
    return int(hits[0]) if len(hits) else None


def at_target(curve: Curve, target: float, values: NDArray[np.float64]) -> float:
    """Return that of `values`, one an evaluation, at which the target is first reached; NaN where it never is."""
    index = reached(curve, target)
    return math.nan if index is None else float(values[index])


def spread_at(runs: Sequence[Curve], target: float, column: str) -> Spread:
    """Return what a measured column held when the target was first reached, over the seeds of a method."""
    return spread([at_target(run, target, run[column]) for run in runs])


def total(runs: Sequence[Curve], column: str) -> float:
    """Return the sum over `runs` of a measured column at their ends."""
    return sum(float(run[column][-1]) for run in runs)


def dense_ratio(runs: Sequence[Curve], sides: Sequence[str]) -> float:
    """Return what plain Flower would have sent over what was sent, all `runs` and `sides` together; 0 where nothing was.

    `sides` are of "uplink" and "downlink".
    """
    dense, sent = (sum(total(runs, f"{kind}{side}_bytes") for side in sides) for kind in ("dense_", ""))
    return dense / sent if sent else 0.0


def is_dense(curve: Curve) -> bool:
    """Return whether a run's nodes send their updates as they are."""
    return parse_call(str(curve.settings["uplink"]))[0] == "dense"


def targets(study: Study, scenario: Scenario, asked: Sequence[float]) -> tuple[float, ...]:
    """Return the target accuracies of a scenario, 0 to 1: those asked for, or `SHARES` of the best, in whole percent.

    The best is the highest mean final accuracy of the methods that send dense, of all where none does, and always of
    those with an end for every seed.  Only targets above every accuracy of round 0 are returned: there may be none.
    """
    if asked:
        return tuple(dict.fromkeys(asked))
    there = [curve for curve in study.curves if curve.scenario == scenario]
    ends = {curve.method: accuracies(study, curve.method, scenario, "final") for curve in there}
    means = {method: end.mean for method, end in ends.items() if end.whole}
    dense = [means[curve.method] for curve in there if is_dense(curve) and curve.method in means]
    best = max(dense or means.values(), default=0.0)
    untrained = [float(value) for curve in there for value in curve["accuracy"][curve["round"] == 0]]
    least = max((value for value in untrained if not math.isnan(value)), default=0.0)
    derived = dict.fromkeys(math.floor(100 * share * best + 1e-9) / 100 for share in SHARES)
    return tuple(target for target in derived if target > least)


def winners(values: Sequence[tuple[float, str]], *, most: bool = False) -> list[int]:
    """Return the indices of the least of (number, number as shown), or of the `most`; who is shown alike, ties.

    NaN wins nothing.
    """
    there = [(number, shown) for number, shown in values if not math.isnan(number)]
    if not there:
        return []
    best = (max if most else min)(there, key=lambda one: one[0])[1]
    return [at for at, (number, shown) in enumerate(values) if shown == best and not math.isnan(number)]


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the Pareto front of (bytes, accuracy), fewest bytes first: no other has less and more.

    Points with NaN lie on no front; of equal points the first does.
    """
    order = sorted(range(len(points)), key=lambda at: (points[at][0], -points[at][1]))
    best, kept = -math.inf, []
    for at in order:
        if not math.isnan(points[at][0]) and points[at][1] > best:
            best = points[at][1]
            kept.append(at)
    return kept
