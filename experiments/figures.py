"""The figures of a study, each with a caption: accuracy against its cost and what is swept, the Pareto front, time to targets.

A method has the same colour, dash and marker in all figures of a study. A line is the mean over seeds, a band reaches from
the lowest seed to the highest; where a seed is missing or diverged, both are of the others. A figure without points is None.
"""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullFormatter

from benchmarks.figure_file import literal_text
from benchmarks.netshape.profiles import PROFILES
from experiments.axes import Axis
from experiments.study import Measure, Study, pareto_front, spread

MAX_PANELS = 24
"""The most panels of one figure; the others are left out, and the caption says so."""
COLORS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, which suit all kinds of colour vision, without their yellow, which is too pale on white."""
MARKERS = "osDv^PX<*>p"
MARKERS_PER_LINE = 7
LEGEND_ROW_INCHES, ROOM_FOR_ROWS = 0.2, 2
"""The height of a row of the legend, and the rows for which a figure has room: it grows with more."""
MIN_LOG_RATIO = 16
"""An axis of swept numbers is logarithmic from this ratio of the largest to the smallest on."""
LINE_STYLE = {"errorbar": ("pi", 100), "err_kws": {"alpha": 0.15, "linewidth": 0}, "markersize": 5, "linewidth": 1.5}
COSTS = {
    "uplink": (
        "uplink_bytes",
        "sent up, all nodes together (MB, logarithmic)",
        "the uplink bytes. Further left is cheaper, higher is better.",
    ),
    "downlink": (
        "downlink_bytes",
        "sent down, with catch-up, all nodes together (MB, logarithmic)",
        "the downlink bytes, including those that brought absent nodes up to date.",
    ),
    "both": ("traffic_bytes", "sent up and down, all nodes together (MB, logarithmic)", "all traffic, up and down."),
    "iterations": (
        "iterations",
        "iterations (steps of a node that is in every round)",
        "training steps: the cost of compression where traffic is free. An iteration is a step of a node in every round.",
    ),
    "rounds": ("round", "rounds of communication (logarithmic)", "the rounds of communication."),
}
"""Cost -> its column, the label of its axis, and what the caption says that accuracy is against."""


class Picture(NamedTuple):
    """A figure, with a name for its file and a caption that says how to read it."""

    name: str
    caption: str
    figure: Figure


def pictures(study: Study) -> Iterator[Picture]:
    """Yield the figures of a study one after the other; each is closed when the next is drawn."""
    with (  # also while a figure is written
        plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}),
        literal_text(),
    ):
        for name, figure, caption in _figures(study):
            if figure is not None:
                yield Picture(name, caption, figure)
                plt.close(figure)


def _figures(study: Study) -> Iterator[tuple[str, Figure | None, str]]:
    bands = left_out = ""
    if study.has_seeds:
        bands = " A line is the mean over seeds; its band reaches from the lowest to the highest."
        if not spread(study.runs, "final")["whole"].all():
            bands += " Where a seed is missing or has diverged, both are of the others."
    if len(study.scenarios) > MAX_PANELS:
        left_out = f" Shown are the first {MAX_PANELS} of {len(study.scenarios)} settings."
    measures: dict[Measure, str] = {"final": "at the last evaluation", "best": "best of all evaluations"}
    for axis in study.axes:
        if any(len(scenarios) > 1 for scenarios in study.split(axis).values()):
            for measure, which in measures.items():
                yield (
                    f"{measure}-against-{_slug(axis.name)}",
                    sweep(study, axis, measure),
                    f"Test accuracy ({which}) against {axis.name}. A flat line is a method that this does not affect."
                    + bands
                    + left_out,
                )
    for cost, (column, label, caption) in COSTS.items():
        figure = accuracy_against(study, column, label)
        yield f"accuracy-against-{cost}", figure, f"Test accuracy against {caption}{bands}{left_out}"
    yield (
        "pareto",
        pareto(study),
        "Final accuracy against all traffic of the complete run. The grey line is the Pareto front: no other method ends "
        "better with fewer bytes. Pale markers are behind it, or lack a seed, which is missing or diverged. A bar reaches "
        "from the lowest seed to the highest." + left_out,
    )
    yield (
        "time-to-target",
        time_to_target(study),
        "Time until the target accuracy above each panel is first reached, mean over seeds; a marker for each network. A "
        "method without markers does not reach it with every seed. Further left is faster; the assumptions are below."
        + left_out,
    )
    for profile in PROFILES if len(study.scenarios) == 1 else ():
        figure = accuracy_against(study, profile.name, f"over {profile.name} (logarithmic)")
        yield f"accuracy-over-{_slug(profile.name)}", figure, f"Test accuracy against time over {profile.name}.{bands}"


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")


def accuracy_against(study: Study, column: str, label: str) -> Figure | None:
    """Return test accuracy against a column of `Study.table`: a panel for each scenario, a line for each method.

    Bytes are shown in MB, the seconds over a network in the unit that begins the label.
    """
    size = 1e6 if "MB" in label else 1
    if column in (profile.name for profile in PROFILES):
        unit, size = time_unit(study.table[column])
        label = f"{unit} {label}"
    table = study.table.dropna(subset=["accuracy"])
    table = table.assign(accuracy=100 * table["accuracy"], cost=table[column] / size)
    table["cost"] = table.groupby(["scenario", "method", "round"], observed=True)["cost"].transform("mean")
    if logarithmic := "logarithmic" in label:
        table = table[table["cost"] > 0]
    if table.empty:
        return None
    grid = _panels(study, table, "line", "cost", "accuracy", sort=False, **LINE_STYLE)
    mark_few(grid)
    return _finish(grid, label, "test accuracy (%)", logarithmic=logarithmic)


def mark_few(grid: sns.FacetGrid) -> None:
    """Leave about `MARKERS_PER_LINE` markers on each line."""
    for axes in grid.axes.flat:
        for line in axes.get_lines():
            line.set_markevery(max(1, len(line.get_xdata()) // MARKERS_PER_LINE))


class _PlainNumbers(LogFormatter):
    """Labels the ticks that `LogFormatter` labels, with 0.6 instead of 6e-01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick; empty for one without."""
        return f"{x:g}" if super().__call__(x, pos) else ""


def show_numbers(axis: XAxis | YAxis) -> None:
    """Label a logarithmic axis with plain numbers: matplotlib's powers of ten are TeX, which is off in `literal_text`."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(_PlainNumbers(minor_thresholds=(1.5, 0.5)))


def sweep(study: Study, axis: Axis, measure: Measure) -> Figure | None:
    """Return the final or best accuracy against a swept setting: a panel for each setting of the other axes."""
    runs = study.runs.assign(accuracy=100 * study.runs[measure])
    common = {one: text for text, group in study.split(axis).items() if len(group) > 1 for one in group}
    runs = runs[runs["scenario"].isin(common) & runs["accuracy"].notna()]
    if runs.empty:
        return None
    runs = runs.assign(
        scenario=pd.Categorical(runs["scenario"].map(common).astype(str), list(dict.fromkeys(common.values())))
    )
    if not axis.numeric:
        runs[axis.name] = pd.Categorical(runs[axis.name], axis.values)
    grid = _panels(study, runs, "line", axis.name, "accuracy", **LINE_STYLE)
    values = [float(value) for value in axis.values] if axis.numeric else range(len(axis.values))
    for axes in grid.axes.flat:
        if axis.numeric and min(values) > 0 and max(values) / min(values) >= MIN_LOG_RATIO:
            axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xticks(values, [axis.format(value) for value in axis.values], rotation=0 if axis.numeric else 25)
    return _finish(grid, axis.label, f"{measure} test accuracy (%)")


def pareto(study: Study) -> Figure | None:
    """Return final accuracy against the bytes of the complete run, of the runs that have an end."""
    runs = study.runs.dropna(subset=["final"])
    ends = spread(study.runs, "final").join((spread(runs, "traffic_bytes")["mean"] / 1e6).rename("sent"))
    ends = ends.dropna(subset=["mean"]).reset_index()
    ends[["mean", "low", "high"]] *= 100
    ends = ends[ends["sent"] > 0]
    if ends.empty:
        return None
    grid = _panels(study, ends, "scatter", "sent", "mean", s=60, zorder=2)
    panels = grid.axes_dict or {ends["scenario"].iloc[0]: grid.ax}
    for scenario, axes in panels.items():
        points = ends[ends["scenario"] == scenario]
        front = pareto_front(points[points["whole"]])
        axes.plot(front["sent"], front["mean"], color="#555555", linewidth=1, drawstyle="steps-post", zorder=1)
        axes.vlines(points["sent"], points["low"], points["high"], color="#555555", linewidth=1, zorder=1)
        for markers in axes.collections[:1]:
            markers.set_alpha(np.where(points.index.isin(front.index), 1.0, 0.3))
    label = "sent up and down in the complete run, all nodes together (MB, logarithmic)"
    return _finish(grid, label, "final test accuracy (%)", logarithmic=True)


def time_to_target(study: Study) -> Figure | None:
    """Return the time until each method reaches the highest target that any method reaches with every seed.

    There is a panel for each scenario, a row for each method, and a marker for each network. None if there is no such target.
    """
    keys = ["scenario", "target", "method"]
    times = pd.concat(
        spread(study.reached, profile.name, keys).assign(network=profile.name) for profile in PROFILES
    ).reset_index()
    times = times[times["whole"]]
    times = times[times["target"] == times.groupby("scenario", observed=True)["target"].transform("max")]
    if times.empty:
        return None
    unit, size = time_unit(times["mean"])
    goals = dict(zip(times["scenario"], times["target"], strict=True))
    titles = {
        scenario: f"{scenario}; target {100 * goals[scenario]:g} %".removeprefix("; ")
        for scenario in study.scenarios
        if scenario in goals
    }
    panels = pd.Categorical([titles[scenario] for scenario in times["scenario"]], list(titles.values()))
    height = 0.2 * len(study.methods) + 1
    grid = _facets(
        times.assign(mean=times["mean"] / size, scenario=panels), sns.catplot, kind="strip", x="mean", y="method",
        hue="network", order=study.methods, jitter=False, size=6, palette=COLORS[1:5], height=height,
        aspect=3.6 / height, legend_out=False,
    )  # fmt: skip
    return _finish(grid, f"{unit} to the target accuracy (logarithmic)", "", logarithmic=True)


def time_unit(seconds: "pd.Series[float]") -> tuple[str, int]:
    """Return the largest unit of time that is no longer than the median, and its seconds."""
    units = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
    return next((unit for unit in units.items() if unit[1] <= seconds.median()), ("seconds", 1))


def _panels(study: Study, rows: pd.DataFrame, kind: str, x: str, y: str, **more: Any) -> sns.FacetGrid:
    """Return a panel for each scenario, with a line or markers for each method."""
    count = len(study.methods)
    dashes: list[Any] = ["", (4, 1.5), (1, 1), (3, 1.25, 1.5, 1.25)]
    looks: dict[str, Any] = {
        "hue": "method", "style": "method", "hue_order": study.methods, "style_order": study.methods,
        "palette": list(islice(cycle(COLORS), count)), "markers": list(islice(cycle(MARKERS), count)),
    }  # fmt: skip
    if kind == "line":
        looks["dashes"] = [dashes[at // len(COLORS) % len(dashes)] for at in range(count)]
    looks["facet_kws"] = {"legend_out": False}
    return _facets(rows, sns.relplot, kind=kind, x=x, y=y, height=2.8, aspect=1.3, **looks, **more)


def _facets(rows: pd.DataFrame, draw: Any, **more: Any) -> sns.FacetGrid:
    """Draw with one of seaborn's figure-level functions: a panel for each scenario in `rows`, at most `MAX_PANELS`."""
    panels = list(rows["scenario"].cat.categories[rows["scenario"].cat.categories.isin(rows["scenario"])])[:MAX_PANELS]
    if len(panels) > 1:
        rows = rows[rows["scenario"].isin(panels)]
        more |= {"col": "scenario", "col_order": panels, "col_wrap": {2: 2, 4: 2}.get(len(panels), 3)}
    else:
        more |= {"height": max(more["height"], 4), "aspect": 1.6}
    return draw(data=rows, **more)


def _finish(grid: sns.FacetGrid, x: str, y: str, *, logarithmic: bool = False) -> Figure:
    """Label the figure once, move its legend above the panels, and return it."""
    grid.set_titles("{col_name}", size=9)
    grid.set_axis_labels("", "")
    for axes in grid.axes.flat:
        if logarithmic and axes.dataLim.xmax > 0:
            axes.set_xscale("log")
            show_numbers(axes.xaxis)
            axes.tick_params(which="minor", labelsize=7)
        axes.tick_params(which="major", labelsize=8)
    figure: Figure = grid.figure
    figure.set_layout_engine("constrained")
    figure.supxlabel(x, fontsize=10)
    figure.supylabel(y, fontsize=10)
    if grid.legend is not None:
        texts = [text.get_text() for text in grid.legend.get_texts()]
        columns = max(1, int(figure.get_figwidth() * 12.5 / (max(map(len, texts)) + 8)))
        rows = -(-len(texts) // columns)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW_INCHES * max(0, rows - ROOM_FOR_ROWS))
        sns.move_legend(
            grid, "outside upper center", ncols=min(len(texts), columns), title=None, frameon=False, fontsize=9
        )
    return figure
