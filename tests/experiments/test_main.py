"""The command, from a study file to a table and a report: stopped, killed, gone on with, and refused."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import study_report
from experiments.__main__ import main
from experiments.plan import read_plan
from experiments.results import read_csv, read_rows, write_csv
from tests.experiments.rows import ROW

ROOT = Path(__file__).parents[2]
QUICK = ROOT / "benchmarks" / "studies" / "quick.toml"
STUDY = """title = "A small study"
[run]
model = "logistic"
clients = 10
clients-per-round = 2
evaluate-every = 200
partition = "dirichlet(alpha=0.1, min_size=50)"  # which the seeds 0 and 3 can meet, and 1 cannot

[grid]
seed = [0]

[[method]]
label = "short"
iterations = 20
local-steps = 10

[[method]]
label = "long"
iterations = 600
local-steps = 1
"""
ENDLESS = STUDY.replace("600", "100_000_000")


def start(study: Path, out: Path, **more: str) -> "subprocess.Popen[str]":
    """Start the command as a shell does: with a process group of its own."""
    command = [sys.executable, "-m", "experiments", str(study), "--out", str(out), "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(out.parent), **more}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_a_cell(process: "subprocess.Popen[str]") -> None:
    """Read what the process says until a cell is done, and the next one runs."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("1 of 2"):
            return
    raise AssertionError("the process ended before a cell was done")


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_killed_study_goes_on_and_runs_no_cell_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, out = write(tmp_path, STUDY), tmp_path / "out"
    with start(study, out) as process:
        wait_for_a_cell(process)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    first = read_rows(out / "results.csv")
    assert {row.method for row in first} == {"short"}

    again = [str(study), "--out", str(out), "--workers", "1"]
    assert main(again) == 0
    assert "1 of 2 cells are done" in capsys.readouterr().err
    both = read_rows(out / "results.csv")
    assert {row.method for row in both} == {"short", "long"}
    assert both[: len(first)] == first  # its seconds too: it was not run again
    assert "A small study" in (out / "report.html").read_text()

    assert main(again) == 0
    printed = capsys.readouterr()
    assert "2 of 2 cells are done" in printed.err
    assert (read_rows(out / "results.csv"), printed.out) == (both, "")

    write(tmp_path, STUDY.replace("seed = [0]", "seed = [3, 0, 1]").split('[[method]]\nlabel = "long"')[0])
    assert main(again) == 1
    said = capsys.readouterr().err
    assert "1 of 3 cells are done" in said
    failed = "short, seed 1: dirichlet(alpha=0.1, min_size=50) for 10 clients: The max number of attempts"
    assert f"failed: {failed}" in said
    assert "Traceback" not in said
    seeds = [row for row in read_rows(out / "results.csv") if row.method == "short"]
    assert list(dict.fromkeys(row.seed for row in seeds)) == [3, 0]
    assert [row for row in seeds if row.seed == 0] == first


def test_ctrl_c_ends_with_a_sentence_a_whole_table_and_no_process_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, out = write(tmp_path, ENDLESS), tmp_path / "out"
    with start(study, out) as process:
        wait_for_a_cell(process)
        assert main([str(study), "--out", str(out)]) == 2
        assert re.search(f"{out} is in use by another run of a study; wait for it", capsys.readouterr().err)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)  # the end of its stderr, which every process of its holds open
    assert process.returncode == 130
    stopped, hint = said.splitlines()[-2:]
    assert stopped == "stopped: 1 of 2 cells are done; the same command goes on where it was"
    assert {row.method for row in read_rows(out / "results.csv")} == {"short"}
    study_report.main(shlex.split(hint.removeprefix("what is there so far: python -m experiments.study_report ")))
    assert (out / "results.html").exists()


def test_no_process_outlives_one_that_is_killed(tmp_path: Path) -> None:
    study, out = write(tmp_path, ENDLESS), tmp_path / "out"
    with start(study, out) as process:
        wait_for_a_cell(process)
        process.kill()
        process.communicate(timeout=60)  # the end of its stderr, which every process of its holds open
    assert not list(tmp_path.glob("fedcomp-study-*"))


def test_the_quick_study_shows_that_stc_sends_less(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(QUICK), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert sum("accuracy" in line for line in said) == 18  # a line for each cell
    assert len(said) < 25
    table = read_csv(tmp_path / "results.csv")
    last = table.sort_values("round").groupby("cell").last()
    sent = (last.uplink_bytes + last.downlink_bytes).groupby(last.method).mean()
    assert sent["STC 1/25"] < sent["FedAvg n = 10"] < sent["SGD, dense"]
    assert last.accuracy.groupby(last.method).mean()["STC 1/25"] > 0.85
    study_report = (tmp_path / "report.html").read_text()
    assert "Digits in a minute" in study_report
    assert "python -m experiments experiments/studies/quick.toml" in study_report


def test_without_data_the_hub_is_asked_once_and_a_sentence_says_that_it_does_not_answer(tmp_path: Path) -> None:
    study = write(tmp_path, STUDY.replace("[run]", '[run]\ndataset = "mnist"'))
    with socket.socket() as nobody:  # a port on which nobody listens
        nobody.bind(("127.0.0.1", 0))
        hub = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with start(study, tmp_path / "out", HF_ENDPOINT=hub, NO_PROXY="127.0.0.1", HF_HOME=str(tmp_path)) as process:
            _, said = process.communicate()
    assert process.returncode == 2
    lines = said.splitlines()
    assert lines[1] == "mnist: no --data-dir; asking the Hugging Face hub"
    assert re.search("line 3: dataset is 'mnist'; .* did not come from the Hugging Face hub .*--data-dir", lines[2])
    assert len(lines) == 3


def test_cells_of_another_study_are_taken_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, table, out = write(tmp_path, ENDLESS), tmp_path / "others.csv", tmp_path / "out"
    acked = [replace(ROW, cell=cell.name) for cell in read_plan(study).cells]
    write_csv(table, [replace(ROW, cell="of no interest"), *acked])
    for wrong, says in ((tmp_path / "no.csv", "no.csv: No such file"), (study, "small.toml is no table of results")):
        assert main([str(study), "--out", str(out), "--reuse", str(table), str(wrong)]) == 2
        assert says in capsys.readouterr().err
    assert not out.exists()

    assert main([str(study), "--out", str(out), "--reuse", str(table)]) == 0
    assert "taken from other results: 2\n2 of 2 cells are done" in capsys.readouterr().err
    assert read_rows(out / "results.csv") == acked


def test_check_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(QUICK), "--check", "--out", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out").exists()
    assert "18 cells; checking settings and data\nnothing is in its way\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("[grid]", "[grdi]"), r"small.toml, line 9: unknown key 'grdi'; there are: title"),
        (("seed = [0]", "sede = [0]"), r"small.toml, line 10: unknown key 'sede' in \[grid\]; there are: .*seed"),
        (
            ('"logistic"', '"logistc"'),
            "small.toml, line 3: model is 'logistc'; unknown model 'logistc'; there are: .*cnn",
        ),
        (("min_size=50", "min_size=500"), "small.toml, line 7: partition is .*min_size=500"),
        (("seed = [0]", "seed = [0"), "small.toml: .* a TOML file is needed"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], says: str
) -> None:
    study = write(tmp_path, STUDY.replace(*change))
    assert main([str(study), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert re.search(f"^python -m experiments: .*{says}", printed.err, re.MULTILINE)
    assert (printed.out, (tmp_path / "out").exists()) == ("", False)


def test_files_that_are_not_there_or_in_the_way_are_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file or directory; a study file is needed" in capsys.readouterr().err
    study = write(tmp_path, STUDY)
    assert main([str(study), "--out", str(study)]) == 2
    assert f"{study}: File exists" in capsys.readouterr().err
    (tmp_path / "results.csv").write_text("a study's notes\n")
    assert main([str(study), "--out", str(tmp_path)]) == 2
    assert "results.csv is no table of results" in capsys.readouterr().err
    assert (tmp_path / "results.csv").read_text() == "a study's notes\n"


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1.5", "²"])
def test_workers_are_a_number(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(QUICK), f"--workers={workers}"])
    assert caught.value.code == 2
    assert "a whole number, 1 or more, is needed" in capsys.readouterr().err
