"""The table of results: what is written is what is read, and a file that is none is refused by a sentence."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.results import COLUMNS, DTYPES, Row, read_csv, read_rows, to_frame, write_csv
from tests.experiments.rows import ROW, cell, study


def test_a_line_of_the_file_is_a_row_of_the_study(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, [replace(ROW, cell="a", partition="stc(classes=2, gamma=0.9)", accuracy=0.5)])
    head, line = path.read_text(encoding="utf-8").splitlines()
    assert head.startswith("cell,method,dataset,model,partition,clients,participation,")
    assert line == (
        'a,STC 1/100,mnist,logistic,"stc(classes=2, gamma=0.9)",100,0.1,1,20,0.04,0.0,0,fedavg,stc(density=0.01),'
        "stc(density=0.01),0,0,0.5,,0,0,0,0,0,0,0,0.0,0.0"
    )


def test_what_is_written_is_read_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    rows = [
        replace(
            ROW,
            cell=f"cell {at}",
            method='µ, "quoted"\nand more',
            accuracy=float(rng.random()),
            loss=None if at % 2 else float(rng.random()),
            uplink_bytes=int(rng.integers(2**62)),
            client_seconds=float(np.exp(rng.normal(0, 9))),
        )
        for at in range(50)
    ]
    write_csv(tmp_path / "results.csv", rows)
    assert read_rows(tmp_path / "results.csv") == rows
    pd.testing.assert_frame_equal(read_csv(tmp_path / "results.csv"), to_frame(rows))


def test_the_frame_has_whole_numbers_texts_and_nan_where_there_is_no_accuracy(tmp_path: Path) -> None:
    write_csv(tmp_path / "results.csv", [replace(ROW, cell="NA", accuracy=None, loss=math.nan)])
    frame = read_csv(tmp_path / "results.csv")
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == DTYPES
    assert tuple(frame.columns) == COLUMNS
    assert frame.cell[0] == "NA"
    assert np.isnan(frame.accuracy[0])
    assert np.isnan(frame.loss[0])


def test_a_file_without_rows_is_a_frame_without_rows(tmp_path: Path) -> None:
    write_csv(tmp_path / "results.csv", [])
    assert len(read_csv(tmp_path / "results.csv")) == 0


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, study())
    before = path.read_bytes()

    def broken() -> Iterator[Row]:
        yield ROW
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_csv(path, broken())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cell,method", "cell,other", "columns without method and with other"),
        ("cell,method", "method,cell", "columns in another order"),
        ("server_seconds\n", "server_seconds,more\n", "columns with more"),
        (",mnist,", ",", "line 2: 27 cells; 28 are needed"),
        (",0.5,", ",half,", "line 2: accuracy is 'half'; a number is needed"),
        (",100,", ",100.5,", "line 2: clients is '100.5'; a whole number is needed"),
        (",0.1,", ",,", "line 2: participation is ''; a number is needed"),
    ],
)
def test_a_file_that_is_no_table_of_results_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, [replace(ROW, cell="a", accuracy=0.5)])
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match="no table of results") as refused:
        read_csv(path)
    assert said in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b'"never closed'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "results.csv").write_bytes(data)
    with pytest.raises(ValueError, match="no table of results"):
        read_csv(tmp_path / "results.csv")


def test_a_round_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    rows = cell([0.1, 0.2])
    write_csv(tmp_path / "results.csv", [*rows, rows[1]])
    with pytest.raises(ValueError, match=r"line 4: round 1 of cell .* is there twice"):
        read_csv(tmp_path / "results.csv")
