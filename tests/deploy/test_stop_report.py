"""What a launcher says after Ctrl-C, of runs that can continue and of runs that cannot."""

import json
import sys
from pathlib import Path

import pytest

from deploy.control import Control, Run
from deploy.program import Program
from deploy.stop_report import StopReport
from server.folder import RunFolder
from server.run_records import RoundRecord

COMMAND = ["deploy/local", "run", "-c", "seed=3 uplink=stc(density=0.01)"]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The folder of a run that has begun."""
    folder = RunFolder(tmp_path / "runs" / "digits-001")
    folder.path.mkdir(parents=True)
    folder.write_json("settings.json", {"num-rounds": 9})
    folder.append(RoundRecord(0, 0.1, 2.3))
    return folder


def report(folder: RunFolder, *, resumes: bool = False) -> StopReport:
    runs = folder.path.parent
    log = runs.parent / "run.log"
    log.write_text(f"INFO : starts\ndigits, cnn, fedavg: {folder.path}\nround 0/9  in {runs}\n")
    stopped = StopReport(runs, COMMAND, resumes=resumes)
    stopped.run = Run("1", Control(runs.parent, "mark/"), Program("flwr run", "mark/", log))
    return stopped


def test_a_run_with_a_checkpoint_continues_with_the_same_command(folder: RunFolder) -> None:
    folder.append(RoundRecord(1, 0.2, 2.2))
    folder.checkpoint.touch()
    said = report(folder).text().splitlines()
    assert said == [
        f"stopped after round 1; {folder.path} holds what there is",
        "continue it with:",
        "    deploy/local run -c 'seed=3 uplink=stc(density=0.01)' -c 'resume=true run-name=digits-001'",
    ]
    assert json.loads(folder.nodes.read_text())["state"] == "stopped"
    assert (
        report(folder, resumes=True).text().splitlines()[-1]
        == "    deploy/local run -c 'seed=3 uplink=stc(density=0.01)'"
    )


def test_a_run_in_its_first_round_starts_again_without_a_checkpoint(folder: RunFolder) -> None:
    said = report(folder).text()
    assert said.startswith("stopped after round 0;")
    assert said.endswith("run-name=digits-001'")


def test_a_run_without_a_checkpoint_says_what_would_keep_one(folder: RunFolder) -> None:
    folder.append(RoundRecord(1, 0.2, 2.2))
    assert report(folder).text().endswith("it keeps no checkpoint to continue from; a run with checkpoint-every=1 does")


def test_before_the_run_has_a_folder_nothing_can_continue(tmp_path: Path) -> None:
    assert StopReport(tmp_path, COMMAND, resumes=False).text() == "stopped before the run began; nothing is left of it"


def test_the_report_follows_a_signal_and_no_error(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="wrong"), report(folder):
        raise ValueError("wrong")
    with report(folder):
        pass
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit), report(folder):
        raise SystemExit(130)
    assert capsys.readouterr().err.startswith("\nstopped after round 0;")


def test_the_command_that_watches_the_run_follows_the_line_with_its_folder(folder: RunFolder) -> None:
    stopped = report(folder)
    assert stopped.how_to_watch(f"digits, cnn, fedavg: {folder.path}") == (
        f"watch it in another terminal: {sys.executable} -m deploy.monitor {folder.path}"
    )
    assert stopped.how_to_watch(f"error: {folder.path} is full") is None
    assert stopped.how_to_watch(f"round 1: {folder.path.parent.parent}/others/digits-001") is None
