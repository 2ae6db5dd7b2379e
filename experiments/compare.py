"""Compare run folders side by side: the settings that differ, accuracy, bytes, and the bytes until a common accuracy.

    fedcomp compare runs/a runs/b [--target 0.9] [--tables text] [--out runs/compare.png]

A run that still goes on is compared as far as it is. All bytes are of all nodes together, catch-up included in down.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.figure_file import format_of, literal_text, write
from deploy.monitor.snapshot import MonitorError, RunSnapshot, read_run
from experiments.command import command, new_parser, usage
from experiments.figures import COLORS, MARKERS, MARKERS_PER_LINE, show_numbers
from experiments.table import Table
from fedcomp.commands import path_of
from fedcomp.core import format_bytes

NOT_COMPARED = frozenset({"run-name", "runs-dir", "resume"})
"""Settings that say where a run is, and not what it does."""
Runs = Mapping[str, RunSnapshot]
"""Label -> run."""


def read_runs(paths: Sequence[Path]) -> dict[str, RunSnapshot]:
    """Return the runs by the names of their folders, or by their paths where names are equal.

    Raises `ValueError` for a folder that is given twice, that is no run or is damaged, and for a run that was not evaluated
    after a round.
    """
    names = [path.resolve().name for path in paths]
    runs: dict[str, RunSnapshot] = {}
    for path, name in zip(paths, names, strict=True):
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise ValueError(f"{path} is given twice; each run is needed once")
        try:
            run = read_run(path)
        except MonitorError as error:
            raise ValueError(str(error)) from None
        try:
            evaluated = bool(_accuracies(run)) and len(_sums(run)) > 0
        except TypeError:
            text = f"{path} has a round without a number or without bytes; a complete rounds.jsonl is needed"
            raise ValueError(text) from None
        if not evaluated:
            raise ValueError(f"{path} has no accuracy after a round yet; a run with one is needed")
        runs[name if names.count(name) == 1 else str(path)] = run
    return runs


def settings_table(runs: Runs) -> Table:
    """Return the settings that are not the same in all runs, with a column for each run."""
    keys = dict.fromkeys(key for run in runs.values() for key in run.settings if key not in NOT_COMPARED)
    rows = [(key, *(str(run.settings.get(key, "-")) for run in runs.values())) for key in keys]
    return Table("Settings that differ.", ("setting", *runs), tuple(row for row in rows if len(set(row[1:])) > 1))


def common_accuracy(runs: Runs) -> float | None:
    """Return the highest whole percent that every run reaches, 0 to 1; None if an untrained model reaches it as well."""
    reached = math.floor(100 * min(max(_accuracies(run)) for run in runs.values()) + 1e-9) / 100
    untrained = [record.accuracy or 0.0 for run in runs.values() for record in run.rounds if record.round == 0]
    return reached if reached > max(untrained, default=0.0) else None


def results_table(runs: Runs, target: float | None) -> Table:
    """Return accuracy, bytes and ratio of each run, and its bytes until it first reaches `target`, 0 to 1."""
    head = ["run", "rounds", "last accuracy", "best", "up", "down", "both", "ratio"]
    caption = "Accuracy on the test data. Ratio: the bytes that plain Flower would have sent over those sent."
    if target is not None:
        goal = f"{100 * target:g} %"
        head += [f"rounds to {goal}", f"up to {goal}", f"both to {goal}"]
        caption += f" To {goal}: until the first evaluation with at least that accuracy."
    rows = []
    for label, run in runs.items():
        accuracies = _accuracies(run)
        up, both, dense = (sizes[-1] for sizes in _sums(run))
        ratio = f"{dense / both:.1f}" if both else "-"
        cells = [str(run.rounds[-1].round), f"{accuracies[-1]:.1%}", f"{max(accuracies):.1%}"]
        cells += [format_bytes(up), format_bytes(both - up), format_bytes(both), ratio]
        if target is not None:
            cells += _until(run, target)
        rows.append((label, *cells))
    return Table(caption, tuple(head), tuple(rows))


def draw(runs: Runs, target: float | None) -> Figure:
    """Return a figure: test accuracy over the bytes sent so far, up and down, with a line for each run."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines, labels = list[Line2D](), list[str]()
    for at, (label, run) in enumerate(runs.items()):
        _, both, _ = _sums(run)
        points = [
            (size / 1e6, 100 * record.accuracy)
            for record, size in zip(run.rounds, both, strict=True)
            if record.accuracy is not None and size > 0
        ]
        labels.append(f"{label}: {format_bytes(both[-1])}")
        lines += axes.plot(
            [size for size, _ in points], [accuracy for _, accuracy in points],
            color=COLORS[at % len(COLORS)], marker=MARKERS[at % len(MARKERS)], markersize=5, linewidth=1.5,
            linestyle=["-", "--", ":", "-."][at // len(COLORS) % 4], markevery=max(1, len(points) // MARKERS_PER_LINE),
        )  # fmt: skip
    if target is not None:
        axes.axhline(100 * target, color="#8a8a8a", linewidth=1, linestyle=":", zorder=1)
    axes.set_xscale("log")
    show_numbers(axes.xaxis)
    axes.set_xlabel("sent, up and down, all nodes together (MB, logarithmic)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    # Without handles and labels, matplotlib leaves out a line whose label begins with "_".
    figure.legend(
        lines, labels, loc="outside upper center", ncols=max(1, 80 // (max(map(len, runs)) + 14)), frameon=False
    )
    return figure


def _accuracies(run: RunSnapshot) -> list[float]:
    return [record.accuracy for record in run.rounds if record.accuracy is not None and record.round > 0]


def _sums(run: RunSnapshot) -> tuple[list[int], list[int], list[int]]:
    """Return for each round the bytes sent so far: up, up and down, and those that plain Flower would have sent."""
    traffic = [record.traffic for record in run.rounds]
    up, both, dense = zip(*((one.uplink_bytes, one.sent_bytes, one.dense_bytes) for one in traffic), strict=True)
    return list(accumulate(up)), list(accumulate(both)), list(accumulate(dense))


def _until(run: RunSnapshot, target: float) -> list[str]:
    """Return the rounds and the bytes, up and both ways, until the first evaluation with this accuracy."""
    up, both, _ = _sums(run)
    for record, of_up, of_both in zip(run.rounds, up, both, strict=True):
        if record.round > 0 and record.accuracy is not None and record.accuracy >= target:
            return [str(record.round), format_bytes(of_up), format_bytes(of_both)]
    return ["never"] * 3


def run(options: argparse.Namespace) -> None:
    """Print and draw."""
    with usage():
        format_of(options.out)
        if options.target is not None and not 0 < options.target <= 1:
            raise ValueError(f"--target is {options.target:g}; a number above 0 and at most 1 is needed")
        runs = read_runs(options.runs)
        target = options.target or common_accuracy(runs)
        with literal_text():
            write(draw(runs, target), options.out)
    tables = [results_table(runs, target)]
    if (differ := settings_table(runs)).rows:
        tables.insert(0, differ)
    show = {"text": Table.to_text, "markdown": Table.to_markdown, "latex": Table.to_latex}[options.tables]
    print("\n".join(show(table) for table in tables))
    print(f"figure: {options.out}", file=sys.stderr)


PARSER = new_parser("fedcomp compare", __doc__)
PARSER.add_argument("runs", type=path_of, nargs="+", metavar="RUN", help="the folder of a run, such as runs/digits-001")
PARSER.add_argument("--target", type=float, help="an accuracy, 0 to 1 (the highest whole percent that all runs reach)")
PARSER.add_argument("--tables", choices=("text", "markdown", "latex"), default="text", help="how tables are printed")
PARSER.add_argument(
    "--out", type=path_of, default=Path("runs/compare.png"), metavar="FILE", help="the figure: .png, .svg or .pdf"
)
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
