"""The table of results is read as it was written, and another file is refused with one sentence."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.plan import StudyError
from experiments.results import COLUMNS, Results, claim, read_csv, write_csv
from tests.experiments.rows import cell, rows

COMMITTED = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*/results.csv"))


def test_a_line_of_the_file_is_a_row_of_the_table(tmp_path: Path) -> None:
    write_csv(tmp_path / "results.csv", rows(partition="stc(classes=2, gamma=0.9)", accuracy=0.5, loss=math.nan))
    head, line = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()
    assert head.startswith("cell,method,dataset,model,partition,clients,participation,")
    assert line == (
        'a,STC 1/100,mnist,logistic,"stc(classes=2, gamma=0.9)",100,0.1,1,20,0.04,constant,sgd,0.0,reset,,0,fedavg,examples,'
        "stc(density=0.01),stc(density=0.01),0,0,0.5,,0,0,0,0,0,0,0,0,0,0,0,0,0.0,0.0"
    )


def test_every_number_is_read_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    table = rows(50, method='µ, "quoted"\nand more', cell="NA").assign(
        round=range(50),
        accuracy=rng.random(50),
        loss=np.where(rng.random(50) < 0.5, rng.random(50), math.nan),
        uplink_bytes=rng.integers(2**62, size=50),
        client_seconds=np.exp(rng.normal(0, 9, 50)),
    )
    write_csv(tmp_path / "results.csv", table)
    found = read_csv(tmp_path / "results.csv")
    pd.testing.assert_frame_equal(found, table, check_exact=True)
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == COLUMNS


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_the_published_results_can_be_read_and_reused(path: Path, tmp_path: Path) -> None:
    table = read_csv(path)
    has_column = "weighting" in path.read_text(encoding="utf-8").splitlines()[0].split(",")
    assert set(table["weighting"]) in ([{"examples"}, {"examples", "uniform"}] if has_column else [{"examples"}])
    results = Results(tmp_path / "results.csv", list(table["cell"].unique()))
    assert results.reuse(table) == table["cell"].nunique()
    pd.testing.assert_frame_equal(read_csv(tmp_path / "results.csv"), table, check_exact=True)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("cell,method", "cell,other", "method.*other"),
        ("server_seconds\n", "server_seconds,more\n", "more|Expected 29"),
        (",0.5,", ",half,", "accuracy.*half"),
        (",0.5,", ",7.5,", "column accuracy: 7.5; a number from 0 to 1"),
        (",0.5,", ",inf,", "column accuracy: inf; a number from 0 to 1"),
        (",100,0.1,", ",100,-0.1,", "column participation: -0.1; a number from 0 to 1"),
        (",100,", ",100.5,", "clients.*100.5"),
        (",100,", ",99999999999999999999,", "column clients"),
        (",100,0.1,", ",100,,", "column participation: a row without a number"),
        (",100,0.1,", ",100,nan,", "column participation: a row without a number"),
    ],
)
def test_a_file_that_is_not_a_table_of_results_is_refused(tmp_path: Path, old: str, new: str, text: str) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, rows(accuracy=0.5))
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=text):
        read_csv(path)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b'"never closed', b"a,b\n1,2\n"])
def test_another_kind_of_file_is_refused_and_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "results.csv").write_bytes(data)
    with pytest.raises(StudyError, match=r"results\.csv"):
        Results(tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_bytes() == data


def test_a_round_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = cell([0.1, 0.2])
    write_csv(tmp_path / "results.csv", pd.concat([table, table.tail(1)]))
    with pytest.raises(ValueError, match=r"round 1 of cell STC 1/100"):
        read_csv(tmp_path / "results.csv")


def test_cells_are_kept_in_the_order_of_the_study_and_other_cells_follow(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, pd.concat([rows(cell="other"), rows(cell="b")]))
    results = Results(path, ["a", "b", "c"])
    results.add(pd.concat([rows(cell="c"), rows(cell="c", round=1)]))
    results.add(rows(cell="a"))
    assert read_csv(path)["cell"].tolist() == ["a", "b", "c", "c", "other"]
    assert Results(path).select(["c"])["round"].tolist() == [0, 1]


def test_cells_of_another_study_are_reused_if_they_are_wanted_and_missing(tmp_path: Path) -> None:
    write_csv(tmp_path / "results.csv", rows(cell="b"))
    results = Results(tmp_path / "results.csv", ["a", "b"])
    others = pd.concat([rows(cell=name, seed=7) for name in ("other", "b", "a")])
    assert results.reuse(others) == 1
    assert read_csv(tmp_path / "results.csv")[["cell", "seed"]].to_numpy().tolist() == [["a", 7], ["b", 0]]
    assert results.reuse(others) == 0


def test_a_folder_is_claimed_by_one_study_and_free_afterwards(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(StudyError, match="in use"):
        claim(tmp_path)
    with claim(tmp_path):
        pass
