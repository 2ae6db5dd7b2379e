"""Cells run, and whatever comes of one, the others are in the results; the file of results is whole at any time."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.configuration import Cell
from experiments.results import read_rows, write_csv
from experiments.runner import Results, claimed, run_all
from experiments.source import StudyError
from experiments.workers import Event, Finished, Step
from tests.experiments.cells import cell
from tests.experiments.rows import ROW


def test_results_are_kept_in_the_order_of_the_study_and_those_of_no_study_follow(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, [replace(ROW, cell="other"), replace(ROW, cell="b")])
    results = Results(path, ["a", "b", "c"])
    assert list(results.cells) == ["other", "b"]
    results.add([replace(ROW, cell="c"), replace(ROW, cell="c", round=1)])
    results.add([replace(ROW, cell="a")])
    assert [row.cell for row in read_rows(path)] == ["a", "b", "c", "c", "other"]
    assert Results(path).cells["c"] == [replace(ROW, cell="c"), replace(ROW, cell="c", round=1)]


def test_what_another_study_ran_is_taken_where_it_is_asked_for_and_missing(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write_csv(path, [replace(ROW, cell="b")])
    results = Results(path, ["a", "b"])
    others = {name: [replace(ROW, cell=name, seed=7)] for name in ("other", "b", "a")}
    assert results.reuse(others) == 1
    assert read_rows(path) == [*others["a"], replace(ROW, cell="b")]
    assert results.reuse(others) == 0


def test_a_file_that_holds_no_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StudyError, match=r"results.csv is no table of results: columns without cell, method"):
        Results(tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_text() == "a,b\n1,2\n"


def test_a_folder_is_held_by_one_and_free_again_afterwards(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(StudyError, match="in use by another run of a study; wait for it, or name"):  # noqa: SIM117
        with claimed(tmp_path):
            pass
    with claimed(tmp_path):
        pass


def test_what_fails_is_told_and_the_others_go_on_with_whole_results_after_each(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.csv")
    uneven = "dirichlet(alpha=0.1, min_size=50)"  # which seed 0 can meet, and seed 1 cannot
    fits, fails = cell(partition=uneven, seed=0), cell(partition=uneven, seed=1)
    diverges, last = cell(model="mlp", learning_rate=1e20), cell(seed=2)
    ended: list[Cell] = []

    def told(event: Event) -> None:
        if isinstance(event, Step):
            return
        ended.append(event.cell)
        if isinstance(event, Finished):
            rows = [row for row in read_rows(tmp_path / "results.csv") if row.cell == event.cell.name]
            assert rows == event.rows

    failures = run_all([fits, fails, diverges, last], "", 2, results, told)
    assert sorted(one.name for one in ended) == sorted(one.name for one in (fits, fails, diverges, last))
    assert [failure.cell for failure in failures] == [fails]
    assert failures[0].reason.startswith("dirichlet(alpha=0.1, min_size=50) for 10 clients: The max number of attempts")
    assert results.cells.keys() == {fits.name, diverges.name, last.name}
    assert results.cells[diverges.name][-1].accuracy is None
    assert results.cells[last.name][-1].accuracy is not None
