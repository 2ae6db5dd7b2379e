"""Begin published runs again, to see whether today's code on this machine gets what their tables say.

    python -m experiments.again docs/results/*/results.csv --data-dir DIR

The first cell of each method in a table runs until its first evaluation after a round, with the settings of the study in
experiments/studies that it belongs to. A line shows its accuracy and the bytes of all nodes, in the table and now. The exit
status is 1 if one differs by more than --points or --percent. What differs only later, or in other cells, is not found. On
another machine the last bits differ, and then what sparse methods send, by up to 2 %; accuracy, which rises fast at first,
differs by up to three points.
"""

import argparse
import logging
import math
import sys
from collections.abc import Collection, Mapping
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
HEAD = ("method", "partition", "round", "accuracy", "now", "kB up", "now", "kB down", "now", "")
BYTES = ("uplink_bytes", "downlink_bytes")


def known_cells() -> dict[str, Cell]:
    """Return the cells of all studies by name, those of trials included."""
    plans = (read_plan(path) for path in sorted(STUDIES.rglob("*.toml")) if path.parent.name != "parts")
    return {cell.name: cell for plan in plans for cell in plan.cells}


def beginnings(table: pd.DataFrame, methods: Collection[str]) -> pd.DataFrame:
    """Return the row of the first evaluation after a round, for the first cell of each of the `methods`."""
    return table[(table["round"] > 0) & table["method"].isin(methods)].drop_duplicates("method")


def check_cells(rows: pd.DataFrame, cells: Mapping[str, Cell]) -> None:
    """Raise `StudyError` if no study has the cell of a row."""
    for cell, method in zip(rows["cell"], rows["method"], strict=True):
        if cell not in cells:
            raise StudyError(f"cell {cell}, {method}, is in no study of {STUDIES}, and cannot run again")


def differ(then: "pd.Series[Any]", now: "pd.Series[Any]", points: float, percent: float) -> bool:
    """Return whether two rows differ by more points of accuracy, or more percent of the bytes sent up or down.

    A run that has diverged has no accuracy, and is like another one that has.
    """
    alike = all(math.isclose(then[link], now[link], rel_tol=percent / 100) for link in BYTES)
    if math.isnan(then["accuracy"]) or math.isnan(now["accuracy"]):
        return not alike or math.isnan(then["accuracy"]) != math.isnan(now["accuracy"])
    return not alike or abs(then["accuracy"] - now["accuracy"]) > points / 100


def _run(options: argparse.Namespace) -> int:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with usage():
        cells, tables = known_cells(), {path: read_csv(path) for path in options.results}
        labels = {label for table in tables.values() for label in table["method"]}
        if unknown := set(options.methods or labels) - labels:
            raise StudyError(f"no method {sorted(unknown)[0]!r}; there are: {', '.join(sorted(labels))}")
        chosen = {path: beginnings(table, options.methods or labels) for path, table in tables.items()}
        check_cells(pd.concat(chosen.values()), cells)
    differences = 0
    for path, rows in chosen.items():
        lines: list[tuple[str, ...]] = []
        for _, then in rows.iterrows():
            with usage():
                now = run_cell(cells[then["cell"]], options.data_dir, rounds=then["round"]).iloc[-1]
            differs = differ(then, now, options.points, options.percent)
            differences += differs
            accuracies = (f"{row['accuracy']:.1%}" for row in (then, now))
            sent = (f"{row[link] / 1e3:,.1f}" for link in BYTES for row in (then, now))
            mark = "differs" if differs else ""
            lines.append((then["method"], then["partition"], str(then["round"]), *accuracies, *sent, mark))
        if lines:
            print(Table(str(path), HEAD, tuple(lines)).to_text(), flush=True)
    if differences:
        runs = f"{differences} run differs" if differences == 1 else f"{differences} runs differ"
        print(f"{runs} by more than {options.points:g} points or {options.percent:g} % of the bytes")
    return int(differences > 0)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("python -m experiments.again", __doc__)
    parser.add_argument("results", type=path_of, nargs="+", metavar="CSV", help="tables of results of studies")
    parser.add_argument("--data-dir", default="", help="the folder of the datasets' files; embedded ones need none")
    parser.add_argument("--methods", nargs="+", metavar="LABEL", help="only these")
    parser.add_argument("--points", type=float, default=5.0, help="of accuracy that a run may differ by (5)")
    parser.add_argument("--percent", type=float, default=3.0, help="of its bytes that a run may differ by (3)")
    return parser


main = command(_run, _parser())

if __name__ == "__main__":
    sys.exit(main())
