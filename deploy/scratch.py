"""The temporary folder of a launcher: if it is killed, the next launcher ends its processes and removes the folder.

A launcher holds the lock of its folder for as long as it lives, and its processes carry the path of the folder as their mark
(`deploy.program`).
"""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from deploy.program import Program, end

PREFIX = "fedcomp-run-"
LOCK = ".lock"


@contextmanager
def scratch_folder() -> Generator[Path]:
    """Make a temporary folder, which is removed in the end; first, remove what launchers left that were killed.

    The caller ends its processes, which carry the mark `mark_of_folder`; if it is killed, the next caller does.
    """
    parent = Path("/tmp" if Path("/tmp").is_dir() else tempfile.gettempdir())  # noqa: S108  (Ray's sockets need a short path)
    for folder in parent.glob(f"{PREFIX}*"):
        _remove_if_left(folder)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        if lock := _try_to_lock(folder):
            break  # otherwise, another launcher has taken the folder for one that was left
    try:
        yield folder
    finally:
        _remove(folder)
        lock.release()


def mark_of_folder(folder: Path) -> str:
    """Return the mark of all processes of the launcher with this folder."""
    return f"{folder}/"


def _remove_if_left(folder: Path) -> None:
    """Remove the folder and its processes if its launcher does not live, and if this user may."""
    with suppress(OSError, RuntimeError):  # a process that survives is the next launcher's
        if not folder.is_symlink() and (folder / LOCK).exists() and (lock := _try_to_lock(folder)):
            end([Program("left", mark_of_folder(folder), Path())], grace_s=0)
            _remove(folder)
            lock.release()


def _remove(folder: Path) -> None:
    """Remove the folder, its lock last: without it, no launcher would know the folder again."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _try_to_lock(folder: Path) -> BaseFileLock | None:
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock
