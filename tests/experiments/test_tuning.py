"""A study with [tune] tries each value with the first seed, and runs each method with its best one."""

import re
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pandas as pd
import pytest

from experiments import study_report
from experiments.__main__ import main
from experiments.cell import run_cell
from experiments.configuration import Cell
from experiments.plan import StudyError, StudyPlan, read_plan
from experiments.results import read_csv
from experiments.runner import Event, Failure, Finished, Workers

STUDY = """
title = "Rates"
[run]
dataset = "digits"
model = "mlp"
clients = 4
clients-per-round = 2
batch-size = 10
iterations = 6
evaluate-every = 1
local-steps = 1
partition = "iid()"
[grid]
seed = [0, 1]
[tune]
learning-rate = [0.00001, 0.2, 0.1]
[[method]]
label = "dense"
uplink = "dense()"
downlink = "dense()"
[[method]]
label = "STC"
uplink = "stc(density=0.1)"
downlink = "stc(density=0.1)"
"""


def plan_of(folder: Path, text: str = STUDY) -> StudyPlan:
    path = folder / "rates.toml"
    path.write_text(text)
    return read_plan(path)


def results(plan: StudyPlan, accuracy: dict[tuple[str, float], list[float]]) -> pd.DataFrame:
    """Return the accuracies of trials, by method and learning rate."""
    return pd.DataFrame(
        [
            {"cell": cell.name, "accuracy": value}
            for cell in plan.trials
            for value in accuracy.get((cell.label, float(cell.settings["learning-rate"])), [])
        ]
    )


def rates(plan: StudyPlan, table: pd.DataFrame) -> dict[str, set[tuple[object, object]]]:
    """Return the seeds and learning rates of each method's cells."""
    found: dict[str, set[tuple[object, object]]] = {}
    for cell in plan.tuned(table):
        found.setdefault(cell.label, set()).add((cell.settings["seed"], cell.settings["learning-rate"]))
    return found


def test_trials_have_every_value_and_the_first_seed(tmp_path: Path) -> None:
    trials = plan_of(tmp_path).trials
    assert {(cell.label, cell.settings["learning-rate"]) for cell in trials} == {
        (label, rate) for label in ("dense", "STC") for rate in (0.00001, 0.2, 0.1)
    }
    assert {cell.settings["seed"] for cell in trials} == {0}


def test_each_method_gets_its_own_best_value_for_all_seeds(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    table = results(plan, {("dense", 0.2): [0.5], ("dense", 0.1): [0.6], ("STC", 0.2): [0.5], ("STC", 0.1): [0.4]})
    assert rates(plan, table) == {"dense": {(0, 0.1), (1, 0.1)}, "STC": {(0, 0.2), (1, 0.2)}}


def test_the_mean_of_the_last_five_evaluations_decides_and_a_tie_goes_to_the_first(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    late = [0.9, 0.1, 0.1, 0.1, 0.1, 0.1]
    table = results(
        plan, {("dense", 0.2): late, ("dense", 0.1): [0.0, *[0.2] * 5], ("STC", 0.2): [0.3], ("STC", 0.1): [0.3]}
    )
    assert rates(plan, table) == {"dense": {(0, 0.1), (1, 0.1)}, "STC": {(0, 0.2), (1, 0.2)}}


def test_a_run_that_diverged_is_chosen_only_where_all_did_and_a_method_without_a_trial_has_no_cells(
    tmp_path: Path,
) -> None:
    plan = plan_of(tmp_path)
    assert rates(plan, results(plan, {("dense", 0.2): [0.9, float("nan")], ("dense", 0.1): [0.1]})) == {
        "dense": {(0, 0.1), (1, 0.1)}
    }
    assert rates(plan, results(plan, {("dense", 0.2): [float("nan")]})) == {"dense": {(0, 0.2), (1, 0.2)}}


def test_each_point_of_the_grid_is_tuned_by_itself(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        STUDY.replace('partition = "iid()"\n', "").replace("seed =", 'partition = ["iid()", "classes(2)"]\nseed ='),
    )
    best = {"iid()": 0.2, "classes(2)": 0.1}
    rows = [
        {"cell": cell.name, "accuracy": float(cell.settings["learning-rate"] == best[str(cell.settings["partition"])])}
        for cell in plan.trials
    ]
    chosen = {(cell.settings["partition"], cell.settings["learning-rate"]) for cell in plan.tuned(pd.DataFrame(rows))}
    assert chosen == set(best.items())


def test_without_tuning_all_cells_run(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, STUDY.replace("[tune]\nlearning-rate = [0.00001, 0.2, 0.1]\n", ""))
    assert plan.trials == ()
    assert plan.tuned(pd.DataFrame()) == plan.cells
    assert len(plan.cells) == 4


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("[0.00001, 0.2, 0.1]", "[0.1]", "tune.learning-rate is .*at least 2"),
        ("[0.00001, 0.2, 0.1]", "[0.1, 0.2, 0.1]", r"tune.learning-rate\[2\] is 0.1 again"),
        ("learning-rate = [", "seed = [", "tune.seed is in \\[grid\\] and in \\[tune\\]"),
        ("learning-rate = [", "rate = [", "tune.rate is an unknown key"),
        ("[0.00001, 0.2, 0.1]", "[-1.0, 0.1]", "tune.learning-rate is -1.0"),
        ("[[method]]\n", "[[method]]\nlearning-rate = 0.1\n", "learning-rate is in \\[tune\\] and in a \\[\\[method"),
    ],
)
def test_a_table_of_tuning_that_cannot_be_used_is_one_sentence(
    before: str, after: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match=sentence) as error:
        plan_of(tmp_path, STUDY.replace(before, after, 1))
    assert "\n" not in str(error.value)


def run_here(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Cell], bool] = lambda cell: False) -> None:
    """Run cells in this process, but for those that shall fail, and draw no figures."""

    def run(_: Workers, cells: Sequence[Cell], data_dir: str, scratch: Path | None) -> Generator[Event, None, None]:
        for cell in cells:
            yield Failure(cell, "out of memory") if fails(cell) else Finished(cell, run_cell(cell, data_dir, scratch))

    monkeypatch.setattr(Workers, "run", run)
    monkeypatch.setattr(study_report, "pictures", lambda study: iter(()))


def test_the_report_names_what_could_not_be_tried_and_counts_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(cell: Cell) -> bool:
        return cell.label == "STC" or cell.settings["learning-rate"] == 0.1

    run_here(monkeypatch, fails)
    plan_of(tmp_path, STUDY.replace("iterations = 6", "iterations = 2").replace("mlp", "logistic"))
    assert main([str(tmp_path / "rates.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert "2 of 4 cells (runs) are in this report" in page
    assert "learning-rate was chosen for each method from those of 1e-05, 0.2, 0.1 that could be tried" in page
    assert "dense: 0.2 (0.1 failed in 1 of 1 trials); STC: none (1e-05 failed in 1 of 1 trials, 0.2 failed" in page
    assert "no value of [tune] could be tried: STC." in page
    assert "failed: STC, seed 0, learning-rate 0.2: out of memory" in capsys.readouterr().err


def test_a_study_without_a_single_trial_ends_without_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(monkeypatch, lambda cell: True)
    plan_of(tmp_path)
    assert main([str(tmp_path / "rates.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    assert capsys.readouterr().err.count("failed: ") == 12, "as they fail, and at the end"
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {".lock"}, "no environment without results"


def test_a_report_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(monkeypatch)
    text = STUDY.replace("iterations = 6", "iterations = 2").replace("mlp", "logistic").split("[tune]")[0]
    plan_of(tmp_path, text.replace("seed = [0, 1]", "learning-rate = [0.1, 0.1000000001]") + "[[method]]\nlabel = 'a'")
    assert main([str(tmp_path / "rates.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 2
    log = capsys.readouterr().err
    assert re.search("^fedcomp study: .*results.csv: no report can be made: cells .* in one setting", log, re.MULTILINE)
    assert len(read_csv(tmp_path / "out" / "results.csv")["cell"].unique()) == 2


def test_the_places_of_the_grid_where_a_method_could_not_be_tried_are_named(tmp_path: Path) -> None:
    text = STUDY.replace('partition = "iid()"\n', "")
    plan = plan_of(tmp_path, text.replace("seed =", 'partition = ["iid()", "classes(2)"]\nseed ='))
    assert (len(plan.cells), plan.num_runs) == (24, 8)
    assert plan.untried(plan.cells) == []
    some = [cell for cell in plan.cells if cell.settings["partition"] == "iid()" or cell.label == "dense"]
    assert plan.untried(some) == ["STC, partition classes(2)"]


def test_a_study_is_tuned_run_and_continued_and_its_report_says_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(monkeypatch)
    plan_of(tmp_path, STUDY.replace("iterations = 6", "iterations = 2").replace("mlp", "logistic"))
    command = [str(tmp_path / "rates.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert main(command) == 0
    table = read_csv(tmp_path / "out" / "results.csv")
    assert set(read_csv(tmp_path / "out" / "tuning.csv")["learning_rate"]) == {0.00001, 0.1, 0.2}
    assert table.groupby("method")["learning_rate"].nunique().tolist() == [1, 1]
    assert 0.00001 not in set(table["learning_rate"])
    assert set(table["seed"]) == {0, 1}
    assert "learning-rate was chosen for each method" in (tmp_path / "out" / "report.html").read_text()
    assert "2 of 4 cells are done" in capsys.readouterr().err, "the best trials are results"
    assert main(command) == 0
    assert "6 of 6 cells are done" in (log := capsys.readouterr().err)
    assert "4 of 4 cells are done" in log
    again = [*command[:1], "--out", str(tmp_path / "again"), "--workers", "1"]
    assert main([*again, "--reuse", str(tmp_path / "out" / "tuning.csv")]) == 0
    assert "6 of 6 cells are done" in capsys.readouterr().err, "trials are reused, too"
