"""What a study has measured: one tidy table, a row for each evaluated round of each cell, as a CSV file."""

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd


@dataclass(frozen=True, slots=True)
class Row:
    """One evaluated round of a cell: its settings, and what was measured since the start of the run.

    A cell is one combination of settings with one seed.  Bytes and seconds are sums since the start; bytes are counted,
    ``len(bytes)``, and are those of all nodes together unless their name says otherwise.  The fields are the columns of
    the CSV, in this order.
    """

    cell: str
    """The cell's name: the same in all its rows, and in no other cell's."""
    method: str
    """The method's label in the study file, as in ``STC 1/100``."""
    dataset: str
    model: str
    partition: str
    """How the samples are spread over the clients, as in ``stc(classes=2)``."""
    clients: int
    participation: float
    """Fraction of the clients that take part in a round, 0 to 1."""
    local_steps: int
    """Steps of SGD that a node makes in one round."""
    batch_size: int
    learning_rate: float
    momentum: float
    seed: int
    strategy: str
    uplink: str
    """The nodes' compressor, as `fedcomp.parse` reads it."""
    downlink: str
    """The server's compressor."""
    round: int
    """Rounds done: 0 is the model before training."""
    iterations: int
    """round * local_steps: the steps of a node that takes part in every round."""
    accuracy: float | None
    """On the test split, 0 to 1; None (an empty cell) or NaN where there is none."""
    loss: float | None
    """Mean loss on the test split; None (an empty cell) or NaN where there is none."""
    uplink_bytes: int
    """What all nodes sent."""
    downlink_bytes: int
    """What all nodes were sent, catch-up in it."""
    catch_up_bytes: int
    """The part of `downlink_bytes` that brought absent nodes up to date."""
    dense_uplink_bytes: int
    """What plain Flower would have sent up in these rounds."""
    dense_downlink_bytes: int
    """What plain Flower would have sent down in these rounds."""
    slowest_uplink_bytes: int
    """Sum over rounds of the most that a single node sent in that round."""
    slowest_downlink_bytes: int
    """Sum over rounds of the most that a single node was sent in that round."""
    client_seconds: float
    """Sum over rounds of the mean time that a node computes: training, encoding, decoding."""
    server_seconds: float
    """Time that the server takes to encode and aggregate."""


COLUMNS = tuple(field.name for field in fields(Row))
"""The columns of the CSV, in order."""

KINDS: Mapping[str, object] = get_type_hints(Row)

_DTYPES: Mapping[object, str] = {int: "int64", str: "str"}
DTYPES = {name: _DTYPES.get(kind, "float64") for name, kind in KINDS.items()}
"""Column -> dtype of the data frame.  A missing accuracy or loss is NaN."""


def to_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Return the rows as a data frame, with the dtypes of `DTYPES`."""
    return pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS)).astype(DTYPES)


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows, so that a reader sees the old file or the new one, whole, and nothing between.

    A number is written with all its digits, so that `read_csv` returns the same to the bit.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(asdict(row).values() for row in rows)  # None becomes an empty cell
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_csv(path: Path) -> pd.DataFrame:
    """Return the file's rows as a data frame, with the dtypes of `DTYPES`; a missing accuracy or loss is NaN.

    Raises `ValueError` for a file with other columns, with something else than a number where one belongs, or with a
    round twice; `OSError` where it cannot be read.
    """
    return to_frame(read_rows(path))


def read_rows(path: Path) -> list[Row]:
    """Return the file's rows; raises as `read_csv` does."""
    rows: dict[tuple[str, int], Row] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            _check_head(tuple(next(reader, ())))
            for texts in reader:
                row = _row(texts, reader.line_num)
                if (row.cell, row.round) in rows:
                    raise ValueError(f"line {reader.line_num}: round {row.round} of cell {row.cell!r} is there twice")
                rows[row.cell, row.round] = row
    except (ValueError, csv.Error) as error:  # a UnicodeDecodeError is a ValueError
        raise ValueError(f"{path} is no table of results: {error}") from None
    return list(rows.values())


def _check_head(found: tuple[str, ...]) -> None:
    if found == COLUMNS:
        return
    missing = [name for name in COLUMNS if name not in found]
    other = [name for name in found if name not in COLUMNS]
    said = [f"without {', '.join(missing)}"] if missing else []
    said += [f"with {', '.join(other)}"] if other else []
    raise ValueError(f"columns {' and '.join(said) or 'in another order'}; needed are {', '.join(COLUMNS)}")


def _row(texts: list[str], line: int) -> Row:
    if len(texts) != len(COLUMNS):
        raise ValueError(f"line {line}: {len(texts)} cells; {len(COLUMNS)} are needed")
    return Row(**{name: _value(name, text, line) for name, text in zip(COLUMNS, texts, strict=True)})


def _value(name: str, text: str, line: int) -> Any:
    kind = KINDS[name]
    if kind is str:
        return text
    if text == "" and kind == float | None:
        return None
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        needed = "a whole number" if kind is int else "a number"
        raise ValueError(f"line {line}: {name} is {text!r}; {needed} is needed") from None
