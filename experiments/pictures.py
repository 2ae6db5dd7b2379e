"""The figures that a study has, each with a caption that says how to read it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.netshape.profiles import PROFILES
from experiments.figures import (
    COSTS,
    MAX_PANELS,
    accuracy_against,
    accuracy_lines,
    pareto,
    sweep,
    time_to_target,
    time_unit,
)
from experiments.network import network_seconds
from experiments.study import Measure, Study


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure, with a name for its file and a caption that says how to read it."""

    name: str
    figure: Figure
    caption: str


def pictures(study: Study, given: Sequence[float] = (), slowdown: float = 1.0) -> Iterator[Picture]:
    """Yield the figures of a study one after the other; each is closed when the next is asked for.

    `given` are the target accuracies, 0 to 1; without any they follow from the results, see `study.targets`. A node
    computes `slowdown` times slower than the study's machine.
    """
    with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}):
        for name, figure, caption in _figures(study, given, slowdown):
            if figure is not None:
                yield Picture(name, figure, caption)
                plt.close(figure)


def _figures(study: Study, given: Sequence[float], slowdown: float) -> Iterator[tuple[str, Figure | None, str]]:
    bands = (
        " A line is the mean over seeds; its band reaches from the lowest to the highest." if study.has_seeds else ""
    )
    bands += " Where a seed has diverged, both are of the seeds that are left." if bands and _diverged(study) else ""
    left_out = f" Shown are the first {MAX_PANELS} of {len(study.scenarios)} settings."
    more = bands + (left_out if len(study.scenarios) > MAX_PANELS else "")
    for axis in study.axes:
        if any(len(scenarios) > 1 for scenarios in study.split(axis).values()):
            measures: dict[Measure, str] = {"final": "at the last evaluation", "best": "best of all evaluations"}
            for measure, which in measures.items():
                yield (
                    f"{measure}-against-{_slug(axis.name)}",
                    sweep(study, axis, measure),
                    f"Test accuracy ({which}) against {axis.name}. A flat line is a method that this does not affect.{more}",
                )
    for cost, (_, _, caption) in COSTS.items():
        yield (f"accuracy-against-{cost}", accuracy_against(study, cost), f"Test accuracy against {caption}{more}")
    yield (
        "pareto",
        pareto(study),
        (
            "Final accuracy against all traffic of the complete run. The grey line is the Pareto front: no other method ends "
            "better with fewer bytes. Pale markers are behind it, or have a seed that diverged. A bar reaches "
            f"from the lowest seed to the highest.{more.removeprefix(bands)}"
        ),
    )
    yield (
        "time-to-target",
        time_to_target(study, given, slowdown),
        "Time until the target accuracy above each panel is first reached, mean over seeds; a marker for each network. A "
        "method without markers does not reach it with every seed. Further left is faster; the assumptions are below."
        + more.removeprefix(bands),
    )
    if len(study.scenarios) == 1:
        for profile in PROFILES:
            time = pd.Series(network_seconds(study.table, profile, slowdown), study.table.index)
            unit, size = time_unit(time)
            yield (
                f"accuracy-over-{_slug(profile.name)}",
                accuracy_lines(
                    study, study.table.assign(cost=time / size), f"{unit} over {profile.name} (logarithmic)"
                ),
                f"Test accuracy against time over {profile.name}.{more}",
            )


def _diverged(study: Study) -> bool:
    return bool(study.runs["final"].isna().any())


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")
