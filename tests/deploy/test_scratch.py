"""A launcher that is killed leaves its folder and processes to the next one; one that lives keeps them."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.program import Program, end, is_alive
from deploy.scratch import PREFIX, mark_of_folder, scratch_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are found by /proc alone")

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import os, sys, time
from deploy.program import Program
from deploy.scratch import mark_of_folder, scratch_folder

with scratch_folder() as folder:
    program = Program("part", f"{mark_of_folder(folder)}part/", folder / "log")
    program.start(["sh", "-c", "setsid sleep 1000 & echo; wait"], folder, dict(os.environ))
    while not program.log_text():
        time.sleep(0.01)
    print(folder, flush=True)
    time.sleep(1000)
"""

Start = Callable[[], tuple["subprocess.Popen[str]", Path]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a launcher, which starts a program; after the test, nothing of it is left."""
    with contextlib.ExitStack() as stack:

        def run() -> tuple["subprocess.Popen[str]", Path]:
            launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.enter_context(launcher)
            stack.callback(launcher.kill)
            assert launcher.stdout is not None
            folder = Path(launcher.stdout.readline().strip())
            stack.callback(end, [Program("left", mark_of_folder(folder), Path())], 0)
            return launcher, folder

        yield run


def processes(folder: Path) -> set[psutil.Process]:
    return Program("any", mark_of_folder(folder), Path()).processes()


def test_the_next_launcher_removes_what_a_killed_one_left(start: Start) -> None:
    killed, folder = start()
    killed.kill()
    killed.wait()
    left = processes(folder)
    assert len(left) == 2
    assert (folder / "log").exists()
    with scratch_folder():
        assert not [process for process in left if is_alive(process)]
        assert not folder.exists()


def test_a_launcher_that_lives_keeps_its_folder_and_processes(start: Start) -> None:
    _, folder = start()
    with scratch_folder() as mine:
        assert mine.parent == folder.parent
    assert not mine.exists()
    assert len(processes(folder)) == 2
    assert (folder / "log").exists()


def test_folders_that_are_no_launchers_are_left_alone(tmp_path: Path) -> None:
    with scratch_folder() as mine:
        parent = mine.parent
    (tmp_path / ".lock").touch()
    (tmp_path / "precious").touch()
    link = parent / f"{PREFIX}link-{tmp_path.name}"
    other = parent / f"{PREFIX}other-{tmp_path.name}"
    link.symlink_to(tmp_path)
    other.mkdir()
    try:
        with scratch_folder():
            assert (tmp_path / "precious").exists()
            assert other.exists()
    finally:
        link.unlink()
        other.rmdir()
