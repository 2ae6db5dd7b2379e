"""Published results are what today's code gets: runs begin again, and their first evaluation is that of the table."""

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from experiments import again
from experiments.cell import run_cell
from experiments.results import read_csv, write_csv
from tests.experiments.cells import cell

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def published(folder: str) -> str:
    return str(RESULTS / folder / "results.csv")


@pytest.mark.parametrize(
    ("folder", "methods"),
    [
        ("default-digits", ["fedcomp, default"]),
        ("comp-ams", ["COMP-AMS, top-k 1/100"]),
        ("digits-rigl", ["1/30, all"]),
        ("methods", ["stc(density=0.02)", "eden(bits=0.1)", "doublesqueeze(codec='topk')"]),
    ],
)
def test_published_runs_begin_as_they_are_published(
    folder: str, methods: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert again.main([published(folder), "--methods", *methods]) == 0
    printed = capsys.readouterr().out
    assert all(method in printed for method in methods)


def test_the_beginning_of_a_run_has_the_rows_of_the_whole_run() -> None:
    one = cell(iterations=50, evaluate_every=20)
    whole, begun = run_cell(one, ""), run_cell(one, "", rounds=2)
    columns = [name for name in whole if not name.endswith("_seconds")]
    assert begun["round"].tolist() == [0, 2]
    assert begun[columns].equals(whole[columns].head(2))


@pytest.mark.parametrize(
    ("column", "factor", "options", "status"),
    [
        ("accuracy", 1.0, [], 0),
        ("accuracy", 0.5, [], 1),
        ("accuracy", 0.5, ["--points", "60"], 0),
        ("uplink_bytes", 1.04, [], 1),
        ("downlink_bytes", 0.95, [], 1),
        ("downlink_bytes", 0.95, ["--percent", "6"], 0),
    ],
)
def test_a_run_that_differs_is_shown_and_counted(
    column: str, factor: float, options: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = read_csv(Path(published("default-digits")))
    table[column] = (table[column] * factor).astype(table[column].dtype)
    write_csv(tmp_path / "results.csv", table)
    assert again.main([str(tmp_path / "results.csv"), "--methods", "fedcomp, default", *options]) == status
    printed = capsys.readouterr().out
    assert (
        ("1 run differs by more than" in printed) == bool(status) == bool(re.search(r"differs$", printed, re.MULTILINE))
    )


@pytest.mark.parametrize(
    ("then", "now", "differs"), [(math.nan, math.nan, False), (0.5, math.nan, True), (0.5, 0.52, False)]
)
def test_a_run_that_diverged_is_like_another_that_did(then: float, now: float, differs: bool) -> None:
    rows = [pd.Series({"accuracy": accuracy, "uplink_bytes": 5, "downlink_bytes": 7}) for accuracy in (then, now)]
    assert again.differ(rows[0], rows[1], points=5, percent=1) == differs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cell": "0123456789ab"}, "cell 0123456789ab, fedcomp, default, is in no study"),
        ({"accuracy": 2.0}, "is not a table of results"),
    ],
)
def test_what_cannot_run_again_is_refused(
    change: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = read_csv(Path(published("default-digits")))
    table = table[(table["method"] == "fedcomp, default") & (table["seed"] == 0)]
    write_csv(tmp_path / "results.csv", table.assign(**change))
    assert again.main([str(tmp_path / "results.csv"), "--methods", "fedcomp, default"]) == 2
    assert message in capsys.readouterr().err


def test_a_method_that_no_table_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert again.main([published("default-digits"), "--methods", "STC"]) == 2
    assert re.search(r"no method 'STC'; there are: .*fedcomp, default", capsys.readouterr().err)
