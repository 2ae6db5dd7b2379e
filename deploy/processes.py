"""Processes that a program started, and theirs: found, stopped by id, and waited for, so that none is left behind.

Killing a process group is not enough: Flower starts its parts in sessions of their own, and so does Ray.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

GRACES = ((2.0, signal.SIGTERM), (5.0, signal.SIGKILL), (10.0, signal.SIGKILL))
"""Seconds in which to end, and the signal for what has not."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_CHILD_SUBREAPER = 36

Process = tuple[int, str]  # process id and time of start: an id alone may have been given to another since


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants (Linux), so that none can slip out of sight."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def process_table() -> dict[Process, int]:
    """Return every process of this machine, with its parent's id: on Linux until its exit status is taken."""
    table: dict[Process, int] = {}
    if sys.platform == "linux":
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # it ended while we looked
                continue
            table[int(entry.parent.name), fields[19]] = int(fields[1])
        return table
    with subprocess.Popen(["ps", "-axo", "pid=,ppid=,stat=,lstart="], stdout=subprocess.PIPE, text=True) as listing:
        for line in listing.stdout or ():
            pid, parent, state, start = line.split(maxsplit=3)
            if int(pid) != listing.pid and not state.startswith("Z"):
                table[int(pid), start.strip()] = int(parent)
    return table


def has_ended(process: Process) -> bool:
    """Return whether `process` is over, also where nobody has taken its exit status yet, as under a careless init."""
    if process not in process_table():
        return True
    try:
        return (
            sys.platform == "linux"
            and Path(f"/proc/{process[0]}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        )
    except OSError:
        return True


def descendants(table: Mapping[Process, int], root: int | None = None) -> set[Process]:
    """Return those of `table` that descend from the process with id `root`, or from this one."""
    children: dict[int, list[Process]] = {}
    for process, parent in table.items():
        children.setdefault(parent, []).append(process)
    found: set[Process] = set()
    queue = [os.getpid() if root is None else root]
    while queue:
        for process in children.get(queue.pop(), []):
            if process not in found:
                found.add(process)
                queue.append(process[0])
    return found


def carrying(mark: str) -> set[Process]:
    """Return the living processes whose environment has an entry that starts with `mark`; none where there is no /proc.

    An environment is handed down: so those are found whose parents are gone.
    """
    found = set()
    for process in process_table() if sys.platform == "linux" else ():
        with suppress(OSError):  # it ended, or is another user's
            entries = Path(f"/proc/{process[0]}/environ").read_bytes().split(b"\0")
            if any(entry.startswith(mark.encode()) for entry in entries):
                found.add(process)
    return found


def reap() -> None:
    """Take the exit status of every child that has ended, adopted ones too; else they stay behind as zombies."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def stop(started: Sequence[subprocess.Popen[str]]) -> None:
    """End the processes started, and all of theirs: asked first, then told, then killed; return when none is left."""
    known = descendants(process_table())
    for process in reversed(started):  # what follows a log ends before the server that it follows
        process.terminate()
    for grace_s, then in GRACES:
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            reap()
            table = process_table()
            known = {process for process in known | descendants(table) if process in table}
            if not known:
                return
            time.sleep(0.05)
        for pid, _ in known:
            with suppress(ProcessLookupError):
                os.kill(pid, then)
    raise RuntimeError(f"processes {sorted(pid for pid, _ in known)} did not end, even when killed")


@contextmanager
def signals_as_exits() -> Iterator[None]:
    """Turn the signals that end a program into exits, so that what must be cleaned up is."""

    def leave(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_endings() -> None:
    """From now on, let the signals that end a program do nothing: the end is under way."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
