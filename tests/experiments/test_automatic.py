"""The table that compares the automatic choice with dense traffic and with the best fixed method."""

import math
from pathlib import Path

import pandas as pd
import pytest

from experiments.automatic import by_length, compare, main
from experiments.results import COLUMNS, write_csv


def results(*runs: tuple[str, int, int, float, int]) -> pd.DataFrame:
    """Return a table of results: method, seed, round, accuracy, and bytes each way; dense bytes are 1000 each way."""
    rows = []
    for method, seed, number, accuracy, sent in runs:
        row: dict[str, str | float] = {
            name: "x" if dtype in ("str", "object", "string") else 0 for name, dtype in COLUMNS.items()
        }
        row |= {"cell": f"{method}-{seed}", "method": method, "seed": seed, "round": number, "accuracy": accuracy}
        row |= {"uplink_bytes": sent, "downlink_bytes": sent, "dense_uplink_bytes": 1000, "dense_downlink_bytes": 1000}
        rows.append(row | {"model": "logistic", "participation": 0.25})
    return pd.DataFrame(rows).astype(COLUMNS)


RUNS = (
    ("dense", 0, 10, 0.900, 1000),
    ("fine", 0, 10, 0.896, 100),
    ("coarse", 0, 10, 0.890, 10),
    ("auto, 10 rounds", 0, 10, 0.899, 80),
    ("auto, 10 rounds", 0, 5, 0.5, 40),
    ("dense", 0, 20, 0.95, 2000),
)


def test_the_best_fixed_method_is_the_cheapest_within_half_a_point_of_dense() -> None:
    (line,) = compare(results(*RUNS)).rows
    assert line == ("x", "x", "logistic", "25 %", "10", "1", "90.0 %", "-0.1", "12.5", "fine", "10.0", "0.80")


@pytest.mark.parametrize(
    ("accuracy", "sent", "counts"), [(0.899, 80, "1 .* 1"), (0.899, 126, "1 .* 0"), (0.894, 80, "0 .* 0")]
)
def test_the_lines_that_hold_the_accuracy_and_those_that_are_cheap_too_are_counted(
    accuracy: float, sent: int, counts: str
) -> None:
    caption = compare(results(*RUNS[:3], ("auto, 10 rounds", 0, 10, accuracy, sent))).caption
    held, cheap = counts.split(" .* ")
    assert f"below dense in {held} of 1 lines, and in {cheap} of these" in caption


def test_the_accuracy_is_the_mean_over_the_last_fifth_of_the_rounds() -> None:
    early = [("dense", 0, 8, 0.1, 800), ("fine", 0, 8, 0.1, 80), ("auto, 10 rounds", 0, 8, 0.1, 64)]
    assert compare(results(*RUNS, *early)).rows == compare(results(*RUNS)).rows, "eight tenths are not the last fifth"
    late = [("fine", 0, 9, 0.880, 90), ("coarse", 0, 9, 0.910, 9), ("dense", 0, 9, 0.900, 900)]
    (line,) = compare(results(*late, *RUNS)).rows
    assert line[8:] == ("12.5", "coarse", "100.0", "8.00"), (
        "0.888 is more than half a point below 0.900, and 0.900 is not"
    )


def test_a_run_that_is_shorter_does_not_count() -> None:
    assert compare(results(*RUNS, ("cheap", 0, 9, 0.95, 1))).rows == compare(results(*RUNS)).rows


def test_data_and_partitions_are_lines_of_their_own() -> None:
    other = results(*RUNS).assign(partition="iid", dataset="digits")
    first, second = compare(pd.concat([results(*RUNS), other])).rows
    assert (first[:2], second[:2]) == (("digits", "iid"), ("x", "x"))
    assert first[2:] == second[2:]


def test_only_seeds_that_all_methods_have_count() -> None:
    more = [(method, 1, number, 0.1, 1) for method, _, number, _, _ in RUNS[:3]]
    assert compare(results(*RUNS, *more)).rows == compare(results(*RUNS)).rows


def test_the_gap_has_its_standard_error_over_the_seeds() -> None:
    more = [
        (method, 1, number, accuracy + (0.01 if method == "dense" else 0), sent)
        for method, _, number, accuracy, sent in RUNS
    ]
    (line,) = compare(results(*RUNS, *more)).rows
    assert line[5:8] == ("2", "90.5 %", "-0.6 ± 0.5"), "-0.1 and -1.1"


def test_the_lengths_of_runs_are_columns_of_two_tables() -> None:
    longer = [("dense", 0, 20, 0.95, 2000), ("fine", 0, 20, 0.95, 200), ("auto, 20 rounds", 0, 20, 0.96, 100)]
    other = results(*RUNS).assign(partition="iid")
    points, sent = by_length(compare(pd.concat([results(*RUNS[:-1], *longer), other])))
    assert points.head == ("data", "partition", "model", "participation", "seeds", "10 rounds", "20 rounds")
    assert points.rows == (
        ("x", "iid", "logistic", "25 %", "1", "-0.1", "-"),
        ("x", "x", "logistic", "25 %", "1", "-0.1", "+1.0"),
    )
    assert sent.head == points.head
    assert [row[5:] for row in sent.rows] == [("12.5 of 10.0", "-"), ("12.5 of 10.0", "10.0 of 5.0")]


def test_a_run_that_diverged_has_lost_its_accuracy_from_there_on() -> None:
    cheap = ("cheap", 0, 7, math.nan, 1)
    assert compare(results(*RUNS, cheap)).rows == compare(results(*RUNS)).rows, "it is not the best"
    lost = ("auto, 10 rounds", 0, 7, math.nan, 1)
    (line,) = compare(results(*RUNS[:3], lost)).rows
    assert line[7] == "-90.0"


def test_tables_without_a_comparison_and_missing_files_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(tmp_path / "fixed.csv", results(*RUNS[:3]))
    assert main([str(tmp_path / "fixed.csv")]) == 2
    assert main([str(tmp_path / "none.csv")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 2
    assert "no method is called 'auto, N rounds'" in err
    write_csv(tmp_path / "all.csv", results(*RUNS))
    assert main([str(tmp_path / "all.csv"), "--markdown"]) == 0
    assert "| fine |" in capsys.readouterr().out
    assert main([str(tmp_path / "all.csv"), "--by-length", "--markdown"]) == 0
    assert "| 12.5 of 10.0 |" in capsys.readouterr().out
