"""How every figure of a study looks: a method's colour, dash and marker, small multiples, and one legend outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, Locator, NullLocator
from matplotlib.typing import LineStyleType

from experiments.network import format_duration

COLORS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, for all kinds of colour vision; their yellow is left out, being too pale on white."""
DASHES: tuple[LineStyleType, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">", "p")
GREY = "#555555"
WRAP = 44
"""The most letters of a line over a panel."""
YEAR = 86400 * 365.25
TIMES = (1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, YEAR, 10 * YEAR, 100 * YEAR)
"""Where an axis of seconds is marked."""
FINE = (
    *(mark * 10.0**power for power in range(-6, 1) for mark in (1, 2, 5)), 10, 20,
    *(60 * mark for mark in (1, 2, 5, 10, 20)), *(3600 * mark for mark in (1, 2, 5, 10)),
    *(86400 * mark for mark in (1, 2, 5, 10, 20, 50, 100, 200)),
    *(YEAR * mark * 10.0**power for power in range(8) for mark in (1, 2, 5)),
)  # fmt: skip
"""Where it is marked if fewer than two of those can be seen: at 1, 2 and 5 of each unit."""
ROOM = 24
"""The most panels of one figure; more are no longer seen at a glance."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a method is drawn, in all figures of a study."""

    color: str
    dash: LineStyleType
    marker: str


def styles(methods: Sequence[str]) -> dict[str, Style]:
    """Return each method's style; no two are the same in both colour and dash, up to 21 methods."""
    return {
        method: Style(COLORS[at % len(COLORS)], DASHES[at // len(COLORS) % len(DASHES)], MARKERS[at % len(MARKERS)])
        for at, method in enumerate(methods)
    }


def grid(titles: Sequence[str], x: str, y: str, height: float = 2.5) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title, on shared axes, labelled once; `height` is a panel's, in inches."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(titles), 3)
    rows = -(-len(titles) // columns)
    width = {1: 7.0, 2: 8.4, 3: 10.0}[columns]
    size = (width, height * rows + 1.5 if rows > 1 else max(height + 1.5, 4.6))
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    made = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    every = list(made.flat)
    for spare in every[len(titles) :]:
        spare.remove()
    for at, (axes, title) in enumerate(zip(every, titles, strict=False)):
        axes.set_title(_wrapped(title), fontsize=9)
        axes.grid(visible=True, which="major", alpha=0.3, linewidth=0.6)
        axes.tick_params(which="both", labelsize=8, labelbottom=at + columns >= len(titles))
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(x, fontsize=10)
    figure.supylabel(y, fontsize=10)
    return figure, every[: len(titles)]


def _wrapped(title: str) -> str:
    """Return a title in lines of at most `WRAP` letters; a percent sign stays with its number."""
    return fill(title.replace(" %", "\u00a0%"), WRAP).replace("\u00a0", " ")


def legend(figure: Figure, entries: Mapping[str, Style], *, lines: bool = True) -> None:
    """Draw the one legend, over all panels: with `lines` as a line and marker each, else as a marker."""
    handles = [
        Line2D([], [], color=style.color, linestyle=style.dash if lines else "", marker=style.marker, label=name)
        for name, style in entries.items()
    ]
    room = figure.get_figwidth() * 12.5 / (max(map(len, entries)) + 8)
    columns = max(1, min(len(handles), int(room)))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, fontsize=9, frameon=False, handlelength=3.2
    )


def logarithmic(axes: Axes) -> None:
    """Make the horizontal axis logarithmic, where anything lies on it."""
    if axes.dataLim.xmax > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _at: between(value, *sorted(axes.get_xlim()))))


def between(value: float, low: float, high: float) -> str:
    """Return the label of a mark between powers of ten: none on a wide axis, 2 and 5, or all on a narrow one."""
    if high >= 100 * low:
        return ""
    return f"{value:g}" if high <= 5 * low or f"{value:e}"[0] in "25" else ""


class Clock(Locator):
    """Marks for a logarithmic axis of seconds: two at least, for which a narrow axis is widened."""

    def __call__(self) -> Sequence[float]:
        """Return the marks that can be seen."""
        return [] if self.axis is None else self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the marks from `vmin` to `vmax`, in seconds."""
        coarse = [time for time in TIMES if vmin <= time <= vmax]
        return coarse if len(coarse) > 1 else [time for time in FINE if vmin <= time <= vmax]

    def nonsingular(self, v0: float, v1: float) -> tuple[float, float]:
        """Return limits that hold two marks and these."""
        low, high = min(v0, v1), max(v0, v1)
        if not FINE[0] < low <= high < FINE[-1]:
            return low, high if high > low else low + 1
        if len(self.tick_values(low, high)) > 1:
            return low, high
        return max(time for time in FINE if time <= low), min(time for time in FINE if time > high)


def mark(time_s: float) -> str:
    """Return the label of a mark on an axis of seconds, as 1 day, 20 min or 0.01 s."""
    number, unit = format_duration(time_s).split()
    number = number.removesuffix(".0")
    return f"{number} {unit.removesuffix('s') if number == '1' and len(unit) > 1 else unit}"


def clock(axes: Axes) -> None:
    """Mark a logarithmic axis of seconds at whole seconds, minutes, hours and days."""
    if axes.dataLim.xmax > 0:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(Clock())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _at: mark(value)))
    axes.tick_params(axis="x", labelrotation=35)
    axes.autoscale(enable=True, axis="x")  # so that these marks set the limits
