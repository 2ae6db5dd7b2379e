"""The results of a study: one tidy table, with a row for each evaluated round of each cell, in a CSV file.

Bytes and seconds are sums since the start of the run. Bytes are counted as ``len(bytes)``; they cover all nodes together
unless the column's name says otherwise.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path

import pandas as pd
from filelock import FileLock, Timeout

from experiments.plan import StudyError
from fedcomp.core import write_atomically
from fedcomp.sync import Traffic

SETTINGS = {
    "cell": "str",  # the cell's name: the same in all of its rows, and unique among cells
    "method": "str",  # its label in the study file, as in "STC 1/100"
    "dataset": "str",
    "model": "str",
    "partition": "str",
    "clients": "int64",
    "participation": "float64",  # the fraction of the clients that train in a round, 0 to 1
    "local_steps": "int64",  # SGD steps of a node in one round
    "batch_size": "int64",
    "learning_rate": "float64",
    "learning_rate_schedule": "str",  # over the rounds
    "optimizer": "str",  # of a node
    "momentum": "float64",
    "client_momentum": "str",  # with which a node begins a round
    "training": "str",  # plug-ins of the local training
    "seed": "int64",
    "strategy": "str",
    "weighting": "str",  # of the nodes in a mean: by their number of examples, or uniform
    "uplink": "str",
    "downlink": "str",
}
PROGRESS = {
    "round": "int64",  # rounds done: 0 is the model before training
    "iterations": "int64",  # round * local_steps
    "accuracy": "float64",  # on the test split, 0 to 1; NaN where the run diverged
    "loss": "float64",  # the mean on the test split; NaN where the run diverged
}
TRAFFIC = {field.name: "int64" for field in fields(Traffic) if field.name.endswith("_bytes")}
SLOWEST = {  # sums over the rounds of the most that a single node sent or received in that round
    "slowest_uplink_bytes": "int64",
    "slowest_downlink_bytes": "int64",
}
SECONDS = {
    "client_seconds": "float64",  # the mean time that a node computes in a round: training, encoding, decoding
    "server_seconds": "float64",  # the time that the server takes to encode and aggregate
}
MEASURED = PROGRESS | TRAFFIC | SLOWEST | SECONDS
COLUMNS = SETTINGS | MEASURED
"""Column -> dtype, in the order of the file."""
NEW_TRAFFIC = ("first_model_bytes", "key_bytes", "jump_bytes", "delta_bytes", "replay_bytes")
ADDED = {
    "weighting": "examples",
    "learning_rate_schedule": "constant",
    "optimizer": "sgd",
    "client_momentum": "reset",
    "training": "",
    **dict.fromkeys(NEW_TRAFFIC, "0"),
}
"""Columns that the first published results lack -> the value of their rows.

Those rows count first models as catch-up, and no kinds of frames.
"""


def read_csv(path: Path) -> pd.DataFrame:
    """Return the table in `path`, with the dtypes of `COLUMNS`.

    Raises:
        StudyError: A `ValueError`. The file has other columns, a text where a number belongs, an accuracy or participation
            outside [0, 1], or a round of a cell twice.
        OSError: The file cannot be read.

    """
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
        table = table.assign(**{name: value for name, value in ADDED.items() if name not in table})
        if set(table) != set(COLUMNS):
            missing, unknown = set(COLUMNS) - set(table), set(table) - set(COLUMNS)
            raise ValueError(f"missing columns {sorted(missing)}, unknown columns {sorted(unknown)}")
        table = pd.DataFrame({name: _column(table[name], dtype) for name, dtype in COLUMNS.items()})
    except ValueError as error:  # pandas' parser errors and UnicodeDecodeError are ValueErrors
        raise StudyError(f"{path} is not a table of results: {' '.join(str(error).split())}") from None
    twice = table[table.duplicated(["cell", "round"])]
    if len(twice):
        raise StudyError(f"{path} holds round {twice['round'].iloc[0]} of cell {twice.cell.iloc[0]} twice")
    return table


def _column(texts: "pd.Series[str]", dtype: str) -> "pd.Series[str]":
    try:
        column = texts.replace("", "nan").astype(dtype) if dtype == "float64" else texts.astype(dtype)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"column {texts.name}: {error}") from None
    if texts.name in SETTINGS and column.isna().any():
        raise ValueError(f"column {texts.name}: a row without a number; a cell's settings are in each of its rows")
    if texts.name in ("accuracy", "participation") and not (inside := column.dropna().between(0, 1)).all():
        raise ValueError(f"column {texts.name}: {column[inside.idxmin()]:g}; a number from 0 to 1 is needed")
    return column


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write the table atomically; `read_csv` returns the same numbers to the bit."""
    write_text(path, table.to_csv(index=False, lineterminator="\n", columns=list(COLUMNS)))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, readable by everyone."""
    write_atomically(path, lambda file: file.write(text.encode()), mode=0o644)


class Results:
    """The CSV file of a study. It is complete at any time, and holds the cells that are done."""

    def __init__(self, path: Path, order: Sequence[str] = ()) -> None:
        """Read the file if it exists; raises as `read_csv` does.

        Cells are written in `order`; cells that are not in it, of an earlier version of the study, follow.
        """
        self.path = path
        self.table = read_csv(path) if path.exists() else pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
        self._order = {name: position for position, name in enumerate(order)}

    @property
    def cells(self) -> set[str]:
        """The names of the cells that are done."""
        return set(self.table["cell"])

    def add(self, rows: pd.DataFrame) -> None:
        """Add the rows of finished cells, and write the file."""
        table = pd.concat([self.table, rows[list(COLUMNS)]]).astype(COLUMNS)
        position = table["cell"].map(lambda name: self._order.get(name, len(self._order)))
        self.table = table.iloc[position.argsort(kind="stable")].reset_index(drop=True)
        write_csv(self.path, self.table)

    def reuse(self, other: pd.DataFrame) -> int:
        """Add those cells of another study's table that this study has and that are missing; return how many."""
        wanted = other[other["cell"].isin(self._order.keys() - self.cells)]
        if len(wanted):
            self.add(wanted)
        return int(wanted["cell"].nunique())

    def select(self, cells: Sequence[str]) -> pd.DataFrame:
        """Return the rows of these cells."""
        return self.table[self.table["cell"].isin(cells)]


def claim(folder: Path) -> AbstractContextManager[object]:
    """Return a lock on `folder` that is held until its block ends; raise `StudyError` if another process holds it."""
    try:
        return FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout:
        raise StudyError(f"{folder} is in use by another run of a study; wait for it, or name another --out") from None
