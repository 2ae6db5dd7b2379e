"""One part of a federation: a process, its log, and every process that came of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from deploy.processes import Process, carrying, descendants, has_ended, process_table

MARK = "FEDCOMP_PART"
"""The environment variable that says to which federation, and to which part of it, a process belongs."""
POLL_S = 0.1


@dataclass
class Program:
    """A process that is started, found again, sent signals and ended, always with all that came of it.

    `mark` is handed down in the environment, so that on Linux even those are found whose parents were killed, also
    by another program than the one that started them.  Elsewhere, those are found whose ancestors live.  Marks are
    paths that end in "/": a mark's processes are those of all marks that start with it.
    """

    name: str
    mark: str
    log: Path
    process: Process | None = None
    """The process started last, by id and time of start."""
    _child: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        """Start `command` in `folder`; what it prints goes to the end of the log."""
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env={**env, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # a terminal's Ctrl-C is not for it
            )
        pid = self._child.pid
        self.process = next((process for process in process_table() if process[0] == pid), (pid, "ended"))

    def running(self) -> bool:
        """Return whether the process itself lives; what came of it may outlive it."""
        if self._child is not None and self._child.poll() is not None:
            return False
        return self.process is not None and not has_ended(self.process)

    def processes(self) -> set[Process]:
        """Return the living processes of this program."""
        if sys.platform == "linux":
            # One that was killed has no environment any more, and lives until its memory is given back.
            dying = {self.process} if self.process is not None and self.running() else set()
            return carrying(f"{MARK}={self.mark}") | dying
        table = process_table()
        if self.process not in table or self.process is None:
            return set()
        return {self.process} | descendants(table, self.process[0])

    def signal(self, number: int) -> None:
        """Send a signal to all processes of this program, those included that they start in the meantime."""
        sent: set[Process] = set()
        while new := self.processes() - sent:
            for pid, _ in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            sent |= new

    def tail(self) -> str:
        """Return the last line of the log that says something."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote no log")


def end(programs: Sequence[Program], grace_s: float) -> None:
    """End `programs`: asked first, and killed if any of it is left after `grace_s` seconds.

    Raises `RuntimeError` if even that does not end them.
    """
    for program in programs:
        if program.processes():
            program.signal(signal.SIGCONT)  # one that is stopped does not hear the rest
            if program.process is not None and program.running():
                with suppress(ProcessLookupError):
                    os.kill(program.process[0], signal.SIGTERM)
    if not wait_until(lambda: not any(program.processes() for program in programs), grace_s):
        for program in programs:
            program.signal(signal.SIGKILL)
        if not wait_until(lambda: not any(program.processes() for program in programs), 10):
            left = sorted(pid for program in programs for pid, _ in program.processes())
            raise RuntimeError(f"processes {left} did not end, even when killed")


def wait_until(ready: Callable[[], object], timeout_s: float) -> bool:
    """Return whether `ready` became true within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
