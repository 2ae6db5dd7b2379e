"""The figures of a study that are lines: accuracy as it is paid for, and against what is swept.

A line is the mean over seeds, a band goes from the lowest seed to the highest; with one seed there is no band.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from benchmarks.netshape.profiles import Profile
from experiments.axes import Axis
from experiments.curves import Curve, Scenario, Study
from experiments.network import seconds
from experiments.outcome import Measure, accuracies
from experiments.panels import ROOM, Style, clock, grid, legend, logarithmic, styles

MEGABYTE = 1e6
WIDE = 16
"""From this ratio of largest to smallest on, an axis of numbers is logarithmic."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What an accuracy is drawn against: its name, its label with the unit, and how it comes from a curve."""

    name: str
    label: str
    of: Callable[[Curve], NDArray[np.float64]]
    logarithmic: bool = True
    clock: bool = False
    """Whether it is a time in seconds."""


QUANTITIES = (
    Quantity("uplink", "sent up, all nodes together (MB, logarithmic)", lambda curve: curve["uplink_bytes"] / MEGABYTE),
    Quantity(
        "downlink",
        "sent down with catch-up, all nodes together (MB, logarithmic)",
        lambda curve: curve["downlink_bytes"] / MEGABYTE,
    ),
    Quantity(
        "both",
        "sent up and down, all nodes together (MB, logarithmic)",
        lambda curve: (curve["uplink_bytes"] + curve["downlink_bytes"]) / MEGABYTE,
    ),
    Quantity(
        "iterations",
        "iterations (steps of a node that is in every round)",
        lambda c: c["iterations"],
        logarithmic=False,
    ),
    Quantity("rounds", "rounds of communication (logarithmic)", lambda curve: curve["round"]),
)


def time(profile: Profile, slowdown: float = 1.0) -> Quantity:
    """Return the time that a run takes over a network."""
    return Quantity(
        profile.name,
        f"time over {profile.name} (logarithmic)",
        lambda curve: seconds(curve.measured, profile, slowdown),
        clock=True,
    )


def accuracy_against(study: Study, quantity: Quantity) -> Figure:
    """Return test accuracy against a quantity: a panel a scenario, a line a method, by evaluated round."""
    scenarios = study.scenarios[:ROOM]
    figure, panels = grid([study.title(one) for one in scenarios], quantity.label, "test accuracy (%)")
    look = styles(study.methods)
    for axes, scenario in zip(panels, scenarios, strict=True):
        for method in study.methods:
            if curves := study.seeds(method, scenario):
                _line(axes, curves, quantity, look[method], 0.13 * study.methods.index(method) / len(study.methods))
        if quantity.logarithmic:
            logarithmic(axes)
        if quantity.clock:
            clock(axes)
    legend(figure, look)
    return figure


def _line(axes: Axes, curves: Sequence[Curve], quantity: Quantity, style: Style, shift: float) -> None:
    """Draw the mean over seeds, of the rounds that all have, with its band; `shift` sets the markers apart.

    From where a seed has diverged on, it is the mean of those that are left.
    """
    rounds = np.array(
        [one for one in np.unique(np.concatenate([c["round"] for c in curves])) if _all_have(curves, one)]
    )
    x, y = (np.full((len(curves), len(rounds)), math.nan) for _ in range(2))
    for seed, curve in enumerate(curves):
        _, to, row = np.intersect1d(rounds, curve["round"], return_indices=True)
        x[seed, to], y[seed, to] = quantity.of(curve)[row], 100 * curve["accuracy"][row]
    left = ~np.isnan(y) | np.isnan(y).all(axis=0)  # bytes of the seeds whose accuracy is drawn; at a gap, of all
    x = _over_seeds(np.mean, np.where(left, x, math.nan))
    if quantity.logarithmic:
        x, y = x[x > 0], y[:, x > 0]
    every = (shift, 0.13)
    axes.plot(
        x, _over_seeds(np.mean, y), color=style.color, linestyle=style.dash, linewidth=1.5,
        marker=style.marker, markersize=4, markevery=every if len(x) > 10 else None,
    )  # fmt: skip
    if len(curves) > 1 and not np.isnan(y).all():  # an empty band would set the limits of the axis
        axes.fill_between(x, _over_seeds(np.min, y), _over_seeds(np.max, y), color=style.color, alpha=0.15, linewidth=0)


def _all_have(curves: Sequence[Curve], at: float) -> bool:
    """Return whether all seeds were evaluated after this round, but for those that had diverged before."""
    return all(at in c["round"] or (math.isnan(c["accuracy"][-1]) and at > c["round"][-1]) for c in curves)


def _over_seeds(reduce: Callable[[NDArray[np.float64]], np.floating], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean, least or most over seeds, shape (rounds,); NaN where no seed has a number."""
    there = [column[~np.isnan(column)] for column in y.T]
    return np.array([float(reduce(values)) if len(values) else math.nan for values in there])


def sweep(study: Study, axis: Axis, measure: Measure) -> Figure:
    """Return the final or best test accuracy against a swept setting: a panel for each setting of the other axes."""
    others = [one for one in study.axes if one is not axis]
    rest = [one for one in study.rests(axis) if len(study.along(axis, one)) > 1][:ROOM]
    titles = [", ".join(other.show(value) for other, value in zip(others, one, strict=True)) for one in rest]
    figure, panels = grid(titles, axis.label, f"{measure} test accuracy (%)")
    look = styles(study.methods)
    place = {value: float(value) if axis.numeric else float(at) for at, value in enumerate(axis.values)}
    for panel, one in zip(panels, rest, strict=True):
        along = study.along(axis, one)
        for method in study.methods:
            _swept(panel, study, method, measure, {place[value]: there for value, there in along.items()}, look[method])
        low, high = min(place.values()), max(place.values())
        if axis.numeric and low > 0 and high / low >= WIDE:
            panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xticks(list(place.values()), [axis.format(value) for value in axis.values])
        if not axis.numeric:
            panel.tick_params(axis="x", labelrotation=25)
    legend(figure, look)
    return figure


def sweepable(study: Study) -> list[Axis]:
    """Return the axes along which some scenarios differ in nothing else."""
    return [axis for axis in study.axes if any(len(study.along(axis, one)) > 1 for one in study.rests(axis))]


def _swept(axes: Axes, study: Study, method: str, measure: Measure, along: dict[float, Scenario], style: Style) -> None:
    points = {x: accuracies(study, method, scenario, measure) for x, scenario in along.items()}
    points = {x: point for x, point in points.items() if point.count}
    x = list(points)
    axes.plot(
        x, [100 * point.mean for point in points.values()], color=style.color, linestyle=style.dash,
        linewidth=1.5, marker=style.marker, markersize=4.5,
    )  # fmt: skip
    if part := [at for at, point in points.items() if not point.whole]:
        axes.plot(
            part, [100 * points[at].mean for at in part], color=style.color, linestyle="", marker=style.marker,
            markersize=4.5, markerfacecolor="white",
        )  # fmt: skip
    if any(point.count > 1 for point in points.values()):
        low, high = ([100 * getattr(point, side) for point in points.values()] for side in ("low", "high"))
        axes.fill_between(x, low, high, color=style.color, alpha=0.13, linewidth=0)
