"""`deploy/local` as a user types it: a federation of two nodes trains, and mistakes are refused in one sentence."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local_cli import main
from deploy.process_file import ProcessFile
from deploy.program import wait_until
from tests.deploy.live_federation import carriers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see what is left behind")

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
INSTALLED = ROOT / ".venv" / "bin" / "python"


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start the command from a folder outside of this project, and without its environment."""
    script = [str(ROOT / "deploy" / "local")]
    if not INSTALLED.exists():  # the project is installed elsewhere
        script = [sys.executable, "-P", "-m", "deploy.local_cli"]
    return subprocess.Popen(
        [*script, *arguments, "--folder", str(folder)],
        cwd=folder.parent,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def local(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Return the exit status of the command and what it printed."""
    child = start(folder, *arguments)
    out, err = child.communicate(timeout=TIMEOUT_S)
    return child.returncode, out, err


def living(folder: Path) -> list[str]:
    """Return the names of the processes of the federation in `folder`."""
    record = ProcessFile.read(folder)
    return carriers(record.mark) if record else []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a federation; none runs there after the test."""
    folder = tmp_path / "a federation"
    yield folder
    if record := ProcessFile.read(folder):
        record.end()


@pytest.mark.system
def test_a_federation_of_two_trains_and_is_ended(folder: Path) -> None:
    status, out, err = local(folder, "up", "2")
    assert (status, err) == (0, "")
    for line in ("train: ", "or: ", "look: ", "end: "):
        assert f"\n{line}" in out
    assert len(living(folder)) >= 6  # a SuperLink, two SuperNodes, and for each what starts its apps
    assert local(folder, "up") == (
        1,
        "",
        f"error: a federation runs in {folder} already; end it with {down_command(folder)}\n",
    )

    status, out, _ = local(folder, "run", "-c", "num-rounds=2 run-name=first")
    assert status == 0
    assert "round 2/2" in out
    assert "INFO" not in out
    run = folder / "runs" / "first"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["settings"]["uplink"] == summary["settings"]["downlink"] == "auto"
    assert summary["ratio"] > 1
    assert (run / "checkpoint").exists()

    status, out, err = local(folder, "status")
    assert (status, err) == (0, "")
    assert out.count("online at the SuperLink") == 2
    assert "finished:completed" in out
    record = ProcessFile.read(folder)
    assert record is not None
    os.kill(record.processes["SuperNode 1"][0], signal.SIGKILL)
    assert local(folder, "status")[0] == 1

    assert local(folder, "down") == (0, f"ended; keys, logs, data and state are left in {folder}\n", "")
    assert not living(folder)
    assert local(folder, "down") == (0, f"nothing runs in {folder}\n", "")
    assert local(folder, "status")[0] == 1
    for path in (folder, *folder.rglob("*")):
        private = path == folder or path.suffix == ".key" or path.name in ("keys", "key")
        assert not private or path.stat().st_mode & 0o077 == 0, path


def down_command(folder: Path) -> str:
    """The command line that ends the federation in `folder`."""
    return f"{ROOT}/deploy/local down --folder '{folder}'"


@pytest.mark.system
def test_ctrl_c_while_it_starts_leaves_nothing(folder: Path) -> None:
    child = start(folder, "up", "1")
    assert wait_until(lambda: living(folder), 60)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGINT
    assert not living(folder)
    assert local(folder, "down") == (0, f"nothing runs in {folder}\n", "")


Command = Callable[..., tuple[int | str | None, str, str]]


@pytest.fixture
def type_in(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """As `local`, in this process: for commands that start nothing."""

    def run(*arguments: str) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["deploy/local", *arguments, "--folder", str(folder)])
        try:
            status: int | str | None = main()
        except SystemExit as stop:
            status = stop.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "0"], "0 nodes; at least 1 is needed"),
        (
            ["up", "--data-dir", "nowhere"],
            "--data-dir is nowhere, which is no folder; the folder with the data is needed",
        ),
        (["run"], "nothing runs in {}; start it with"),
    ],
)
def test_an_impossible_command_is_refused_in_one_sentence(
    folder: Path, type_in: Command, arguments: list[str], sentence: str
) -> None:
    status, out, err = type_in(*arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {sentence.format(folder)}")
    assert not folder.exists()


@pytest.mark.parametrize("name", ["up", "down"])
def test_a_foreign_record_ends_nothing(folder: Path, type_in: Command, name: str) -> None:
    folder.mkdir()
    path = folder / "federation.json"
    path.write_text("{}")
    status, out, err = type_in(name)
    path.unlink()
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"{path} cannot be read" in err


def test_down_without_a_federation_makes_no_folder(folder: Path, type_in: Command) -> None:
    assert type_in("down") == (0, f"nothing runs in {folder}\n", "")
    assert not folder.exists()


def test_a_file_in_place_of_the_folder_is_refused(folder: Path, type_in: Command) -> None:
    folder.touch()
    status, _, err = type_in("up")
    assert (status, err.count("\n")) == (1, 1)


@pytest.mark.parametrize("arguments", [["sideways"], ["up", "many"]])
def test_a_wrong_command_line_prints_the_usage(type_in: Command, arguments: list[str]) -> None:
    status, out, err = type_in(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: deploy/local")


def test_without_an_installation_it_prints_how_to_install(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    script = shutil.copy(ROOT / "deploy" / "local", tmp_path / "deploy")
    done = subprocess.run([script, "up"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: fedcomp is not installed in {tmp_path}/.venv; run: make -C {tmp_path} install\n"


def test_a_home_that_is_not_known_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["deploy/local", "status", "--folder", "~nobody-of-this-name/federation"])
    with pytest.raises(SystemExit):
        main()
    assert "argument --folder: '~nobody-of-this-name/federation': " in capsys.readouterr().err
