"""Begin published runs again, to see whether today's code on this machine gets what their tables say.

    python -m experiments.again docs/results/*/results.csv --data-dir DIR

The first cell of each method in a table runs until its first evaluation after a round, with the settings of the study in
experiments/studies that it belongs to. A line shows its accuracy and the bytes of all nodes, in the table and now. The exit
status is 1 if one differs by more than --points or --percent. On another machine the last bits differ, and then what sparse
methods send, by up to 1 %; accuracy, which rises fast at first, differs by up to three points.
"""

import argparse
import logging
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.cell import run_cell
from experiments.command import command, new_parser, usage
from experiments.configuration import Cell
from experiments.plan import StudyError, read_plan
from experiments.results import read_csv
from experiments.table import Table
from fedcomp.commands import path_of

STUDIES = Path(__file__).parent / "studies"
HEAD = ("method", "partition", "round", "accuracy", "now", "kB up", "now", "kB down", "now")
BYTES = ("uplink_bytes", "downlink_bytes")


def known_cells() -> dict[str, Cell]:
    """Return the cells of all studies by name, those of trials included."""
    plans = (read_plan(path) for path in sorted(STUDIES.rglob("*.toml")) if path.parent.name != "parts")
    return {cell.name: cell for plan in plans for cell in plan.cells}


def beginnings(table: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the first evaluation after a round, for the first cell of each method."""
    return table[(table["round"] > 0) & table["accuracy"].notna()].drop_duplicates("method")


def again(then: "pd.Series[Any]", cells: Mapping[str, Cell], data_dir: str) -> "pd.Series[Any]":
    """Return the row of a run of today for the row `then`; raise `StudyError` if no study has its cell."""
    if then["cell"] not in cells:
        raise StudyError(f"cell {then['cell']}, {then['method']}, is in no study of {STUDIES}, and cannot run again")
    return run_cell(cells[then["cell"]], data_dir, rounds=then["round"]).iloc[-1]


def differ(then: "pd.Series[Any]", now: "pd.Series[Any]", points: float, percent: float) -> bool:
    """Return whether two rows differ by more points of accuracy, or more percent of the bytes sent up or down."""
    alike = all(math.isclose(then[link], now[link], rel_tol=percent / 100) for link in BYTES)
    return not alike or not abs(then["accuracy"] - now["accuracy"]) <= points / 100


def _run(options: argparse.Namespace) -> int:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with usage():
        cells, tables = known_cells(), {path: beginnings(read_csv(path)) for path in options.results}
        labels = {label for table in tables.values() for label in table["method"]}
        if unknown := set(options.methods or labels) - labels:
            raise StudyError(f"no method {sorted(unknown)[0]!r}; there are: {', '.join(sorted(labels))}")
    differences = 0
    for path, table in tables.items():
        lines: list[tuple[str, ...]] = []
        for _, then in table[table["method"].isin(options.methods or labels)].iterrows():
            with usage():
                now = again(then, cells, options.data_dir)
            differences += differ(then, now, options.points, options.percent)
            accuracies = (f"{row['accuracy']:.1%}" for row in (then, now))
            sent = (f"{row[link] / 1e3:,.1f}" for link in BYTES for row in (then, now))
            lines.append((then["method"], then["partition"], str(then["round"]), *accuracies, *sent))
        if lines:
            print(Table(str(path), HEAD, tuple(lines)).to_text(), flush=True)
    if differences:
        print(f"{differences} differ by more than {options.points:g} points or {options.percent:g} % of the bytes")
    return int(differences > 0)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("python -m experiments.again", __doc__)
    parser.add_argument("results", type=path_of, nargs="+", metavar="CSV", help="tables of results of studies")
    parser.add_argument("--data-dir", default="", help="the folder of the datasets' files; embedded ones need none")
    parser.add_argument("--methods", nargs="+", metavar="LABEL", help="only these")
    parser.add_argument("--points", type=float, default=5.0, help="of accuracy that a run may differ by (5)")
    parser.add_argument("--percent", type=float, default=2.0, help="of its bytes that a run may differ by (2)")
    return parser


main = command(_run, _parser())

if __name__ == "__main__":
    sys.exit(main())
