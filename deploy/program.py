"""One part of a federation: a process, its log, and all processes that it starts; and the signals that end this one.

Flower and Ray start their parts in sessions of their own, so killing a process group is not enough.  Each program
carries a mark in its environment, which its descendants inherit: so another command finds them later, even if
their parent was killed.
"""

import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

import psutil

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BOX, SIDE = "│╭╮╰╯─", "│"
"""What Flower's command line draws around errors, and what the lines within it begin with."""
MARK = "FEDCOMP_PART"
"""The environment variable that holds the mark of a process."""
POLL_S = 0.1
KILL_TIMEOUT_S = 10.0
MAX_CLOCK_DRIFT_S = 2.0
"""A start time is read relative to the clock, which may have been corrected since."""


@dataclass
class Program:
    """A process that can be started, found again, signalled and ended, together with all of its descendants.

    `mark` is a path that ends in "/": the processes of a mark are those of all marks that start with it.
    """

    name: str
    mark: str
    log: Path
    pid: int = 0
    """The id of the process that was started last; 0 if none was."""
    start_time: float = 0.0
    """When it started, in seconds since the epoch: by now, its id may belong to another process."""
    _child: "subprocess.Popen[bytes] | None" = field(default=None, repr=False, compare=False)

    def start(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        """Start `command` in `folder`; its output is appended to the log."""
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env={**env, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # Ctrl-C in the terminal does not reach it
            )
        self.pid, self.start_time = self._child.pid, time.time()
        with suppress(psutil.Error):  # it has ended already
            self.start_time = psutil.Process(self.pid).create_time()

    def main_process(self) -> psutil.Process | None:
        """Return the process that was started, or `None` if it has ended."""
        if self.pid:
            with suppress(psutil.Error):
                process = psutil.Process(self.pid)
                if abs(process.create_time() - self.start_time) < MAX_CLOCK_DRIFT_S and is_alive(process):
                    return process
        if self._child is not None:
            self._child.poll()  # collects the exit status
        return None

    def running(self) -> bool:
        """Return whether the process itself is alive; its descendants may outlive it."""
        return self.main_process() is not None

    def collect(self) -> None:
        """Take the exit status of a process that has ended; its last threads may end a moment after it."""
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(KILL_TIMEOUT_S)

    def processes(self) -> set[psutil.Process]:
        """Return the living processes of this program: those with its mark, and all descendants of these."""
        found = {process for process in psutil.process_iter() if mark_of(process).startswith(self.mark)}
        if main := self.main_process():
            found.add(main)  # a process that was killed loses its environment before it ends
        ids = {process.pid for process in found}
        for process in list(found):
            with suppress(psutil.Error):
                if process.ppid() not in ids:  # else it is among the descendants of another one
                    found.update(process.children(recursive=True))
        return {process for process in found if is_alive(process)}

    def signal(self, number: int) -> None:
        """Send a signal to all processes of this program, including those that they start in the meantime."""
        reached: set[psutil.Process] = set()
        while new := self.processes() - reached:
            for process in new:
                with suppress(psutil.Error):
                    process.send_signal(number)
            reached |= new

    def log_text(self) -> str:
        """Return the log; empty if there is none."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_line(self) -> str:
        """Return the last line of the log that is not blank; of a box, whose lines are cut at its width, the whole text."""
        lines = [line.strip() for line in self.log_text().split("\n") if line.strip(f"{string.whitespace}{BOX}")]
        box = list(takewhile(lambda line: line[0] == SIDE, reversed(lines)))
        last = [line.strip(f"{string.whitespace}{BOX}") for line in reversed(box or lines[-1:])]
        return " ".join(last) or "it wrote no log"


def is_alive(process: psutil.Process) -> bool:
    """Return whether `process` runs or is stopped; a zombie has ended, even if its parent never collects it."""
    try:
        return bool(process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.Error:
        return False


def mark_of(process: psutil.Process) -> str:
    """Return the mark in the environment of `process`; empty if it has none, has ended, or belongs to another user."""
    with suppress(psutil.Error, OSError):
        return process.environ().get(MARK, "")
    return ""


def end(programs: Sequence[Program], grace_s: float) -> None:
    """End `programs` and all of their processes: SIGTERM to each program, and SIGKILL after `grace_s` seconds.

    Raises `RuntimeError` if processes outlive even that.
    """
    known = {process for program in programs for process in program.processes()}

    def ended() -> bool:
        known.update(process for program in programs for process in program.processes())
        known.difference_update([process for process in known if not is_alive(process)])
        return not known

    for program in programs:
        program.signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
        if main := program.main_process():
            with suppress(psutil.Error):
                main.terminate()
    deadline = time.monotonic() + grace_s + KILL_TIMEOUT_S
    if not wait_until(ended, grace_s):
        while not ended():
            for process in known:
                with suppress(psutil.Error):
                    process.kill()
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes {sorted(process.pid for process in known)} survived SIGKILL")
            time.sleep(POLL_S)
    for program in programs:
        program.collect()


def wait_until(ready: Callable[[], object], timeout_s: float) -> bool:
    """Return whether `ready` became true within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


@contextmanager
def signals_as_exits() -> Generator[None]:
    """Turn the signals that end a program into `SystemExit`, so that ``finally`` blocks run."""

    def leave(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_end_signals() -> None:
    """Ignore these signals from now on: a second Ctrl-C must not interrupt the cleanup."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
