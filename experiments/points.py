"""The figures of a study that are points, one a method: the Pareto front, and the time to a target over a network."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from benchmarks.netshape.profiles import PROFILES, Profile
from experiments.curves import Scenario, Study
from experiments.figures import MEGABYTE
from experiments.network import seconds
from experiments.outcome import accuracies, accuracy, at_target, front, spread, total_bytes
from experiments.panels import GREY, MARKERS, ROOM, Style, clock, grid, legend, logarithmic, styles
from experiments.words import seeds


def pareto(study: Study) -> Figure:
    """Return final accuracy against the bytes of the whole run, both ways: filled on the Pareto front, hollow behind.

    Both are of the runs that have an end.  A method of which a run has none lies on no front, and says how many have.
    """
    scenarios = study.scenarios[:ROOM]
    label = "sent up and down in the whole run, all nodes together (MB, logarithmic)"
    figure, panels = grid([study.title(one) for one in scenarios], label, "final test accuracy (%)")
    look = styles(study.methods)
    for axes, scenario in zip(panels, scenarios, strict=True):
        there = [method for method in study.methods if study.seeds(method, scenario)]
        ends = [accuracies(study, method, scenario, "final") for method in there]
        sent = [_sent(study, method, scenario) for method in there]
        best = front([(size, end.mean if end.whole else math.nan) for size, end in zip(sent, ends, strict=True)])
        axes.plot(
            [sent[at] for at in best], [100 * ends[at].mean for at in best],
            color=GREY, linewidth=1.0, drawstyle="steps-post", zorder=1,
        )  # fmt: skip
        for at, (method, size, end) in enumerate(zip(there, sent, ends, strict=True)):
            style = look[method]
            bar = [[100 * max(side, 0.0)] for side in (end.mean - end.low, end.high - end.mean)]  # a mean is rounded
            axes.errorbar(
                size, 100 * end.mean, yerr=bar,
                color=style.color, marker=style.marker, markersize=6.5, elinewidth=1.0, capsize=2,
                markerfacecolor=style.color if at in best else "white",
            )  # fmt: skip
            if 0 < end.count < end.of:
                axes.annotate(
                    seeds(end), (size, 100 * end.mean), (6, 4), textcoords="offset points", fontsize=7, color=GREY
                )
        logarithmic(axes)
    legend(figure, look, lines=False)
    return figure


def _sent(study: Study, method: str, scenario: Scenario) -> float:
    """Return the mean bytes, in MB, of the runs that have a final accuracy; NaN where none has."""
    ended = [run for run in study.seeds(method, scenario) if not math.isnan(accuracy(run, "final"))]
    return spread([total_bytes(run) / MEGABYTE for run in ended]).mean


def time_to_target(
    study: Study,
    scenarios: Sequence[tuple[Scenario, float]],
    profiles: Sequence[Profile] = PROFILES,
    slowdown: float = 1.0,
) -> Figure:
    """Return the time until each method first reaches a target accuracy, a marker a network: a panel a scenario.

    `scenarios` gives each its target, 0 to 1.  The time is the mean of the seeds that get there.
    """
    titles = [f"{study.title(one)}; target {100 * target:g} %".removeprefix("; ") for one, target in scenarios[:ROOM]]
    figure, panels = grid(titles, "time to the target accuracy (logarithmic)", "", 0.19 * len(study.methods) + 0.9)
    look = styles(study.methods)
    for axes, (scenario, target) in zip(panels, scenarios, strict=False):
        for y, method in enumerate(study.methods):
            runs = study.seeds(method, scenario)
            times = [
                spread([at_target(run, target, seconds(run.measured, profile, slowdown)) for run in runs])
                for profile in profiles
            ]
            if times[0].count == 0:
                said = "not reached" if runs else "not run"
                axes.annotate(said, (0.02, y), xycoords=("axes fraction", "data"), fontsize=7, color=GREY, va="center")
                continue
            axes.plot([time.mean for time in times], [y] * len(times), color=look[method].color, linewidth=0.8)
            for marker, time in zip(MARKERS, times, strict=False):
                axes.plot(time.mean, y, marker, color=look[method].color, markersize=5.5)
            if times[0].count < times[0].of:
                axes.annotate(
                    seeds(times[0]), (max(time.mean for time in times), y), (6, 0),
                    textcoords="offset points", fontsize=7, color=GREY, va="center",
                )  # fmt: skip
        axes.set_yticks(range(len(study.methods)), study.methods)
        axes.set_ylim(len(study.methods) - 0.4, -0.6)
        clock(axes)
    shapes = {profile.name: Style(GREY, "", marker) for profile, marker in zip(profiles, MARKERS, strict=False)}
    legend(figure, shapes, lines=False)
    return figure
