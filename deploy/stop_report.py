"""What a launcher says after Ctrl-C: how far the run came, where it is, and the command that continues it."""

import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from deploy.control import Run
from server.folder import RunFolder, can_resume
from server.run_status import mark_stopped


def folder_in(line: str, runs: Path) -> Path | None:
    """Return the folder of the run in `runs` that a line of the ServerApp's log names, if it is that line."""
    found = re.search(rf": ({re.escape(str(runs))}/[\w.-]+)$", line.rstrip())
    return Path(found[1]) if found else None


def watch_command(folder: Path) -> str:
    """Return the command line that shows the progress of the run in `folder`, from any folder."""
    return shlex.join([sys.executable, "-m", "deploy.monitor", str(folder)])


class StopReport(AbstractContextManager["StopReport"]):
    """Prints the report to the standard error if a signal ends its block, in which a launcher sets `run`.

    `runs` is the folder of runs, and `command` the command line, without its program's settings `resume` and `run-name` if
    `resumes` is false.
    """

    def __init__(self, runs: Path, command: Sequence[str], *, resumes: bool) -> None:
        self.run: Run | None = None
        self._runs, self._command, self._resumes = runs, list(command), resumes

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            print(f"\n{self.text()}", file=sys.stderr, flush=True)

    def how_to_watch(self, line: str) -> str | None:
        """Return the command that watches the run, after the line of its log that names its folder."""
        folder = folder_in(line, self._runs)
        return f"watch it in another terminal: {watch_command(folder)}" if folder else None

    def text(self) -> str:
        """Return the report; the status of the run says from now on that it was stopped."""
        lines = self.run.log().splitlines() if self.run else []
        path = next((found for line in lines if (found := folder_in(line, self._runs))), None)
        if path is None:
            return "stopped before the run began; nothing is left of it"
        folder = RunFolder(path)
        mark_stopped(folder)
        last = max((record.round for record in folder.records()), default=0)
        where = f"stopped after round {last}; {path} holds what there is"
        if not can_resume(folder):
            return f"{where}\nit keeps no checkpoint to continue from; a run with checkpoint-every=1 does"
        extra = [] if self._resumes else ["-c", f"resume=true run-name={path.name}"]
        return f"{where}\ncontinue it with:\n    {shlex.join([*self._command, *extra])}"
