"""The command goes from a study file to a table and a report, however often it is stopped, killed and resumed."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pytest

from experiments import study_report
from experiments.__main__ import main
from experiments.environment import read_environment
from experiments.plan import read_plan
from experiments.results import read_csv, write_csv
from tests.experiments.rows import rows

ROOT = Path(__file__).parents[2]
QUICK = ROOT / "experiments" / "studies" / "quick.toml"
STUDY = """title = "A small study"
[run]
model = "logistic"
clients = 10
clients-per-round = 2
evaluate-every = 200
partition = "dirichlet(alpha=0.03, min_size=100)"  # possible with the seeds 0 and 3, not with 1

[grid]
seed = [0]

[[method]]
label = "short"
iterations = 20
local-steps = 10

[[method]]
label = "long"
iterations = 100
local-steps = 1
"""
ENDLESS = STUDY.replace("iterations = 100", "iterations = 100_000_000")


@contextmanager
def start(study: Path, out: Path, *options: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
    """Start the command as a shell does, with its own process group; nothing of it is left afterwards."""
    command = [sys.executable, "-m", "experiments", str(study), "--out", str(out), "--workers", "1", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(out.parent), **more}
    # Children of a process that ignores Ctrl-C, as those in the background of a shell do, would ignore it as well.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    signal.signal(signal.SIGINT, previous)
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_a_cell(process: "subprocess.Popen[str]") -> None:
    """Read the output of the process until a cell is done."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("1 of 2"):
            return
    raise AssertionError("the process ended before a cell was done")


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


@pytest.mark.system
def test_a_killed_study_resumes_grows_and_runs_no_cell_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_report, "pictures", lambda study: iter(()))
    study, out = write(tmp_path, STUDY), tmp_path / "out"
    with start(study, out) as process:
        wait_for_a_cell(process)
        process.kill()
        process.communicate(timeout=60)  # until the last of its processes has closed stderr: none outlives it
    assert process.returncode == -signal.SIGKILL
    first = read_csv(out / "results.csv")
    assert set(first["method"]) == {"short"}

    again = [str(study), "--out", str(out), "--workers", "1"]
    assert main(again) == 0
    assert "1 of 2 cells are done" in capsys.readouterr().err
    both = read_csv(out / "results.csv")
    assert set(both["method"]) == {"short", "long"}
    pd.testing.assert_frame_equal(both.head(len(first)), first)  # its seconds too: it has not run again
    page = (out / "report.html").read_text()
    assert "A small study" in page
    assert '<a href="results.csv">' in page
    assert f"<td>{read_environment(out)['Python']}</td>" in page

    write(tmp_path, STUDY.replace("seed = [0]", "seed = [3, 0, 1]").split('[[method]]\nlabel = "long"')[0])
    assert main(again) == 1
    log = capsys.readouterr().err
    assert "1 of 3 cells are done" in log
    assert "2 of 3 cells" in (out / "report.html").read_text()
    assert "failed: short, seed 1: dirichlet(alpha=0.03, min_size=100) for 10 clients: " in log
    assert "Traceback" not in log
    seeds = read_csv(out / "results.csv").query("method == 'short'")
    assert seeds["seed"].unique().tolist() == [3, 0]
    pd.testing.assert_frame_equal(seeds.query("seed == 0").reset_index(drop=True), first)


@pytest.mark.system
def test_ctrl_c_leaves_a_sentence_a_complete_table_and_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, out = write(tmp_path, ENDLESS), tmp_path / "out"
    with start(study, out) as process:
        wait_for_a_cell(process)
        assert main([str(study), "--out", str(out)]) == 2
        assert f"{out} is in use" in capsys.readouterr().err
        os.killpg(process.pid, signal.SIGINT)
        _, log = process.communicate(timeout=60)  # until the last of its processes has closed stderr
    assert process.returncode == 130
    stopped, hint = log.splitlines()[-2:]
    assert stopped.startswith("stopped: 1 of 2 cells are done")
    assert set(read_csv(out / "results.csv")["method"]) == {"short"}
    assert not (out / ".running").exists()
    study_report.main(shlex.split(hint.partition("fedcomp report ")[2]))
    assert (out / "results.html").exists()


@pytest.mark.system
def test_the_quick_study_shows_that_stc_sends_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUICK.read_text().replace("seed = [0, 1]", "seed = [0]")  # in small: one seed, one partition
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text.replace('["classes(1)", "classes(2)", "iid()"]', '["classes(2)"]'))
    assert main(["small.toml", "--workers", "1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sum("accuracy" in line for line in lines) == 3  # a line for each cell
    assert len(lines) < 10
    folder = tmp_path / "runs" / "studies" / "small"
    last = read_csv(folder / "results.csv").groupby("method").last()
    sent = last["uplink_bytes"] + last["downlink_bytes"]
    assert sent["STC 1/25"] < sent["FedAvg n = 10"] < sent["SGD, dense"]
    assert last["accuracy"]["STC 1/25"] > 0.85
    page = (folder / "report.html").read_text()
    assert "Digits in a minute" in page
    assert "fedcomp study small.toml" in page


@pytest.mark.nightly
def test_a_hub_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    study = write(tmp_path, STUDY.replace("[run]", '[run]\ndataset = "mnist"'))
    with socket.socket() as silent:  # a port that nothing listens on
        silent.bind(("127.0.0.1", 0))
        hub = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with start(study, tmp_path / "out", HF_ENDPOINT=hub, NO_PROXY="127.0.0.1", HF_HOME=str(tmp_path)) as process:
            _, log = process.communicate()
    assert process.returncode == 2
    lines = log.splitlines()
    assert lines[1] == "mnist: no --data-dir; asking the Hugging Face hub"
    assert re.search("run.dataset is 'mnist'; .*data-dir with the files", lines[2])
    assert len(lines) == 3


def test_cells_of_another_study_are_reused_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_report, "pictures", lambda study: iter(()))
    study, table, out = write(tmp_path, ENDLESS), tmp_path / "others.csv", tmp_path / "out"
    wanted = pd.concat([rows(cell=cell.name, method=cell.label) for cell in read_plan(study).cells])
    write_csv(table, pd.concat([rows(cell="not wanted"), wanted]))
    for wrong in (tmp_path / "no.csv", study):
        for check in ([], ["--check"]):
            assert main([str(study), "--out", str(out), "--reuse", str(table), str(wrong), *check]) == 2
            assert str(wrong) in capsys.readouterr().err
    assert not out.exists()

    assert main([str(study), "--out", str(out), "--reuse", str(table)]) == 0
    assert "other results: 2\n2 of 2 cells are done" in capsys.readouterr().err
    pd.testing.assert_frame_equal(read_csv(out / "results.csv"), wanted.reset_index(drop=True))


def test_check_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(QUICK), "--check", "--out", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out").exists()
    assert "18 cells" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("[grid]", "[grdi]"), "small.toml: grdi .*grid"),
        (("seed = [0]", "sede = [0]"), "small.toml: grid.sede .*seed"),
        (('"logistic"', '"logistc"'), "small.toml: run.model is 'logistc'; .*cnn"),
        (("min_size=100", "min_size=500"), "small.toml: run.partition is .*min_size=500"),
        (("seed = [0]", "seed = [0"), "small.toml: .*TOML"),
    ],
)
def test_a_study_that_cannot_run_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], text: str
) -> None:
    study = write(tmp_path, STUDY.replace(*change))
    assert main([str(study), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert re.search(f"^fedcomp study: .*{text}", printed.err, re.MULTILINE)
    assert (printed.out, (tmp_path / "out").exists()) == ("", False)


def test_files_that_are_missing_or_in_the_way_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file" in capsys.readouterr().err
    study = write(tmp_path, STUDY)
    assert main([str(study), "--out", str(study)]) == 2
    assert f"{study}: File exists" in capsys.readouterr().err
    (tmp_path / "results.csv").write_text("a study's notes\n")
    assert main([str(study), "--out", str(tmp_path)]) == 2
    assert "results.csv" in capsys.readouterr().err
    assert (tmp_path / "results.csv").read_text() == "a study's notes\n"


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1.5", "²"])
def test_workers_are_a_whole_number_above_0(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(QUICK), f"--workers={workers}"])
    assert caught.value.code == 2
    assert workers in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.system
def test_a_study_runs_on_a_local_ray_cluster(tmp_path: Path) -> None:
    study, out = write(tmp_path, STUDY.replace("iterations = 100", "iterations = 2")), tmp_path / "out"
    short = tempfile.gettempdir()  # the path of Ray's sockets is limited to 107 bytes
    with start(study, out, "--ray", "local", TMPDIR=short) as process:
        _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    assert "2 of 2: " in log
    assert set(read_csv(out / "results.csv")["method"]) == {"short", "long"}
