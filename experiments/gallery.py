"""Which figures a study has, each with what it shows and how to read it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from benchmarks.netshape.profiles import PROFILES
from experiments.curves import Scenario, Study
from experiments.figures import QUANTITIES, accuracy_against, sweep, sweepable, time
from experiments.outcome import Measure, accuracy, reached, targets
from experiments.panels import ROOM
from experiments.points import pareto, time_to_target

AGAINST = {
    "uplink": "Test accuracy against what the nodes have sent. Further left is cheaper, higher is better.",
    "downlink": "Test accuracy against what the nodes were sent, with what brought absent nodes up to date.",
    "both": "Test accuracy against all traffic, up and down.",
    "iterations": "Test accuracy against the steps of training: what compression costs where traffic is free. "
    "An iteration is a step of a node that takes part in every round.",
    "rounds": "Test accuracy against the times that nodes and server have spoken.",
}
"""What is drawn against -> how to read it."""
MEASURES: tuple[Measure, ...] = ("final", "best")


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure, a name that does as a file's, and a caption: what it shows, and how to read it."""

    name: str
    figure: Figure
    caption: str


def gallery(study: Study, asked: Sequence[float] = (), slowdown: float = 1.0) -> Iterator[Picture]:
    """Yield the figures of a study, one after the other.

    `asked` are the target accuracies, 0 to 1; with none they follow from the results, see `outcome.targets`.
    `slowdown` is how many times slower than the study's machine a node computes.
    """
    lines = _lines(study)
    for axis in sweepable(study):
        for measure in MEASURES:
            which = (
                "at the last evaluation" if measure == "final" else "best of all evaluations, as the STC paper reports"
            )
            yield Picture(
                f"{measure}-against-{_slug(axis.name)}",
                sweep(study, axis, measure),
                f"Test accuracy ({which}) against {axis.name}. Where a line is flat, its method is indifferent to it. "
                f"{_bands(study, measure)}{_hollow(study, measure)}",
            )
    for quantity in QUANTITIES:
        caption = f"{AGAINST[quantity.name]} {lines}"
        yield Picture(f"accuracy-against-{quantity.name}", accuracy_against(study, quantity), caption)
    yield Picture(
        "pareto",
        pareto(study),
        "Final accuracy against all traffic of the whole run. Filled markers lie on the Pareto front, the grey line: no "
        f"other method ends better with fewer bytes. Hollow ones lie behind it, or not all of their seeds have an end. "
        f"{_bars(study)}{_left_out(study)}",
    )
    chosen = _highest(study, asked)
    if any(
        reached(curve, target) is not None for curve in study.curves for one, target in chosen if curve.scenario == one
    ):
        yield Picture(
            "time-to-target",
            time_to_target(study, chosen, slowdown=slowdown),
            "Time until the target accuracy, named over each panel, is first reached: a row a method, a marker a network. "
            f"Further left is sooner; the assumptions are below.{_left_out(study)}",
        )
    if len(study.scenarios) == 1:
        for profile in PROFILES:
            yield Picture(
                f"accuracy-over-{_slug(profile.name)}",
                accuracy_against(study, time(profile, slowdown)),
                f"Test accuracy against time over {profile.name}. {lines}",
            )


def _highest(study: Study, asked: Sequence[float]) -> list[tuple[Scenario, float]]:
    """Return each scenario that has a target, with the highest that a method reaches; with its lowest if none is."""
    chosen = []
    for scenario in study.scenarios:
        there = [curve for curve in study.curves if curve.scenario == scenario]
        every = targets(study, scenario, asked)
        hit = [one for one in every if any(reached(curve, one) is not None for curve in there)]
        if every:
            chosen.append((scenario, max(hit) if hit else min(every)))
    return chosen


def _lines(study: Study) -> str:
    panel = "Each panel is one setting of the study. " if len(study.scenarios) > 1 else ""
    return f"{panel}{_bands(study)}{_left_out(study)}"


def _bands(study: Study, measure: Measure = "final") -> str:
    if not _seeds(study):
        return ""
    said = "A line is the mean over seeds, its band goes from the lowest seed to the highest."
    lost = any(math.isnan(accuracy(curve, measure)) for curve in study.curves)
    return f"{said} Where a seed has diverged, both are of the seeds that are left." if lost else said


def _hollow(study: Study, measure: Measure) -> str:
    lost = any(math.isnan(accuracy(curve, measure)) for curve in study.curves)
    return " A hollow marker: not all seeds have an accuracy." if lost and _seeds(study) else ""


def _bars(study: Study) -> str:
    return "A marker is the mean over seeds, its bar goes from the lowest to the highest." if _seeds(study) else ""


def _seeds(study: Study) -> bool:
    return len({curve.seed for curve in study.curves}) > 1


def _left_out(study: Study) -> str:
    there = len(study.scenarios)
    return f" Shown are the first {ROOM} of {there} settings." if there > ROOM else ""


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")
