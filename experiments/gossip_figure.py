"""Draw the consensus distance over rounds of what experiments.gossip wrote: a panel for each partition, a line for each method.

    python -m experiments.gossip_figure rows.csv distance.png

A line is the mean over seeds, a band reaches from the lowest to the highest.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from benchmarks.figure_file import format_of, literal_text, write
from experiments.command import command, new_parser, usage
from experiments.figures import COLORS, LINE_STYLE, MARKERS, mark_few, show_numbers
from fedcomp.commands import path_of

COLUMNS = ("partition", "training", "method", "seed", "round", "consensus_distance")


def figure_of(table: pd.DataFrame) -> Figure:
    """Return the figure of a table with the `COLUMNS`."""
    names = table["method"].str.cat(" after " + table["training"].replace("", "float32"))
    table = table.assign(name=names if table["training"].nunique() > 1 else table["method"])
    count = table["name"].nunique()
    grid = sns.relplot(
        data=table, kind="line", x="round", y="consensus_distance", col="partition", hue="name", style="name",
        palette=list(islice(cycle(COLORS), count)), markers=list(islice(cycle(MARKERS), count)),
        dashes=False, height=3, aspect=1.1, facet_kws={"legend_out": False}, **LINE_STYLE,
    )  # fmt: skip
    grid.set(yscale="log")
    grid.set_titles("{col_name}", size=10)
    grid.set_axis_labels("rounds", "consensus distance (logarithmic)")
    mark_few(grid)
    for axes in grid.axes.flat:
        axes.grid(alpha=0.3)
        show_numbers(axes.yaxis)
    figure: Figure = grid.figure
    figure.set_layout_engine("constrained")
    sns.move_legend(grid, "outside upper center", ncols=1 if count > 4 else 2, title=None, frameon=False, fontsize=9)
    return figure


def read(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the rows of all files; raise `ValueError` for one that does not have the columns or has no rows."""
    tables = []
    for path in paths:
        try:
            table = pd.read_csv(path, keep_default_na=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{str(path)!r}: {error}") from error
        if missing := set(COLUMNS) - set(table):
            raise ValueError(
                f"{str(path)!r} has no column {min(missing)}; a file of experiments.gossip --out is needed"
            )
        if table.empty:
            raise ValueError(f"{str(path)!r} has no rows")
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def run(options: argparse.Namespace) -> None:
    """Write the figure."""
    with usage():
        format_of(options.figure)
        table = read(options.rows)
    with literal_text():
        write(figure_of(table), options.figure)


PARSER = new_parser("python -m experiments.gossip_figure", "Draw consensus distances.")
PARSER.add_argument("rows", nargs="+", type=path_of, help="files of experiments.gossip --out")
PARSER.add_argument("figure", type=path_of, help="a name that ends in .png, .svg or .pdf")
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
