"""The command `fedcomp warm`, with the Flower that is installed: no other Flower is forked."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedcomp.__main__ import main
from fedcomp.warm import install, unsupported

PATIENCE_S = 60.0


@pytest.mark.parametrize(("found", "reason"), [("darwin", "it needs Linux"), ("win32", "it needs Linux")])
def test_elsewhere_plain_flower_runs(monkeypatch: pytest.MonkeyPatch, found: str, reason: str) -> None:
    monkeypatch.setattr("sys.platform", found)
    assert reason in unsupported()


def test_another_flower_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcomp.versions.metadata.version", lambda name: "1.39.0")
    assert re.fullmatch(r"flwr is 1.39.0; flwr<.*,>=.* is needed", unsupported())


def test_the_command_runs_a_program_whose_client_apps_are_forked(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    shell = "cat /proc/$$/comm; ls -d $TMPDIR/*; flwr-clientapp --help; exit 3"
    done = subprocess.run(
        [sys.executable, "-m", "fedcomp", "warm", "sh", "-c", shell],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout.startswith(f"sh\n{tmp_path}/fedcomp-warm-")
    assert "usage: flwr-clientapp" in done.stdout
    assert done.stderr == ""
    deadline = time.monotonic() + PATIENCE_S
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "the fork server ends with the program, and deletes its folder"
        time.sleep(0.01)


def test_where_no_program_can_be_written_plain_flower_runs(tmp_path: Path) -> None:
    code = """
import sys, tempfile
from fedcomp.__main__ import main
tempfile.tempdir = sys.argv[1]
main(sys.argv[2:])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "none"), "warm", "sh", "-c", "echo $PATH; exit 4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 4
    assert done.stdout == os.environ["PATH"] + "\n"
    assert re.fullmatch("fedcomp warm: .*; plain Flower runs\n", done.stderr)


def test_a_folder_without_programs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mount with noexec is: `access` says so."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(PermissionError, match="runs no programs"):
        install(tmp_path, os.environ)


def test_a_program_that_is_missing_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["warm", "no-such-program"])
    assert ended.value.code == 2
    assert "fedcomp warm: error: no-such-program is not on the PATH" in capsys.readouterr().err
