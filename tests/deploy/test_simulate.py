"""`make demo` as a user runs it: whole runs of the launcher, and the proof that it leaves no process behind."""

import json
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from deploy.monitor.snapshot import read_run
from deploy.program import is_alive

ROOT = Path(__file__).resolve().parents[2]
TEST_MARK = "FEDCOMP_TEST_MARK"


class Launcher:
    """Starts the launcher in processes with a mark, so that those it leaves behind are found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "deploy" / "simulate.py"), *arguments],
            cwd=self.folder,
            env=os.environ | {TEST_MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Return the processes with the mark, and their children: Ray's workers overwrite their environment."""
        found = set()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(TEST_MARK) == self.mark:
                    found |= {process, *process.children(recursive=True)}
        return list(found)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """The launcher; after the test, no process of it is left."""
    launcher = Launcher(tmp_path)
    yield launcher
    assert launcher.processes() == []


@pytest.mark.nightly
@pytest.mark.system
def test_split_learning_from_start_to_end(launcher: Launcher, tmp_path: Path) -> None:
    text = "split='split(forward=cgx(bits=2), steps=4)' split-layer='2' model=cnn partition='iid()' num-rounds=2 runs-dir=out"
    output, _ = (process := launcher.start("--nodes", "2", "-c", text)).communicate(timeout=300)
    assert process.returncode == 0, output
    summary = json.loads((tmp_path / "out" / "digits-001" / "summary.json").read_text())
    assert summary["rounds"] == 2
    assert 0 < summary["downlink_bytes"] < summary["dense_downlink_bytes"]
    assert summary["uplink_bytes"] > 0, "all activations are first visits, which go in full"
    assert "round 2/2" in output


def test_a_wrong_setting_is_one_sentence_before_anything_starts(launcher: Launcher, tmp_path: Path) -> None:
    output, _ = (process := launcher.start("-c", "num-rounds=0")).communicate(timeout=60)
    assert (process.returncode, output.count("\n")) == (1, 1)
    assert output.startswith("error: num-rounds is 0; ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
def test_a_missing_dataset_is_one_sentence_and_leaves_no_folder(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start("--nodes", "2", "-c", "dataset=mnist data-dir=empty")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert output.count("\n") == 1, output
    assert output.startswith("error: mnist: no train-images-idx3-ubyte")
    assert str(tmp_path / "empty") in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.system
def test_an_interrupted_run_ends_all_of_its_processes_and_says_how_to_continue(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = launcher.start("--nodes", "4", "-c", "num-rounds=100000 fraction-train=0.5 checkpoint-every=1")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round      2/"):
            break
    started = launcher.processes()
    assert len(started) > 5
    assert any("ray" in each.name() for each in started)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert not [each for each in started if is_alive(each)]
    run = tmp_path / "runs" / "digits-001"
    assert read_run(run).state == "stopped"
    last = read_run(run).rounds[-1].round
    assert f"stopped after round {last}; {run} holds what there is\ncontinue it with:\n" in output
    command = shlex.split(output.splitlines()[-1])
    done = subprocess.run(
        [*command, "-c", f"num-rounds={last + 1}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"round {last + 1}/{last + 1}" in done.stdout
    assert json.loads((run / "settings.json").read_text())["num-rounds"] == last + 1


@pytest.mark.system
def test_a_run_from_start_to_end_ends_the_processes_of_one_that_was_killed(launcher: Launcher, tmp_path: Path) -> None:
    first = launcher.start("--nodes", "4", "--workers", "1", "-c", "num-rounds=100000 fraction-train=0.5")
    assert first.stdout is not None
    next(line for line in first.stdout if line.startswith("round      1/"))
    first.kill()
    first.communicate(timeout=60)
    left = [each for each in launcher.processes() if is_alive(each)]
    assert any("ray" in each.name() for each in left)
    settings = "num-rounds=1 fraction-train=1.0 model=logistic runs-dir=again"
    again = launcher.start("--nodes", "2", "--workers", "1", "-c", settings)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    assert not [each for each in left if is_alive(each)]
    summary = json.loads((tmp_path / "again" / "digits-001" / "summary.json").read_text())
    assert summary["rounds"] == 1
    assert 0 < summary["uplink_bytes"] < summary["dense_uplink_bytes"]
    assert 0 < summary["downlink_bytes"] < summary["dense_downlink_bytes"]
    assert summary["settings"]["min-nodes"] == 2
    assert "round 1/1" in output
    assert "INFO" not in output
