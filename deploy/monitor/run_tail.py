"""Reads the folder of a run while it grows: the rounds so far, and the status of its nodes."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from server.folder import RunFolder
from server.run_records import NodeStatus, RoundRecord, from_row
from server.run_status import COMPLETED, RUNNING


class MonitorError(Exception):
    """A run cannot be monitored; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment: `state` is running, completed or failed, `idle_s` the seconds since its last write."""

    name: str
    settings: dict[str, Any]
    rounds: tuple[RoundRecord, ...]
    nodes: tuple[NodeStatus, ...]
    state: str
    num_rounds: int
    version: int | None
    idle_s: float


class RunTail:
    """Reads a run again and again; of its rounds, only the new lines."""

    def __init__(self, path: Path) -> None:
        """Read the run in the folder `path`; raise `MonitorError` if there is none."""
        self._folder = RunFolder(path)
        self._rounds: list[RoundRecord] = []
        self._offset = 0
        self._file: tuple[int, int] | None = None
        try:
            if not self._folder.settings.is_file():
                raise MonitorError(_why_no_run(path))
            self._settings = _parse(self._folder.settings, self._folder.settings.read_bytes())
        except OSError as error:
            raise MonitorError(f"{str(path)[:200]} cannot be read: {error.strerror}") from None

    def read(self) -> RunSnapshot:
        """Return the run as it is now; raise `MonitorError` if its files cannot be read."""
        folder = self._folder
        try:
            self._read_rounds()
            status = _parse(folder.nodes, folder.nodes.read_bytes()) if folder.nodes.exists() else {}
            written = [path for path in (folder.settings, folder.rounds, folder.nodes) if path.exists()]
            idle_s = time.time() - max((path.stat().st_mtime for path in written), default=time.time())
        except OSError as error:
            raise MonitorError(f"{folder.path} cannot be read: {error.strerror}") from None
        try:
            return RunSnapshot(
                folder.path.resolve().name,
                self._settings,
                tuple(self._rounds),
                tuple(from_row(NodeStatus, row) for row in status.get("nodes", ())),
                str(status.get("state", COMPLETED if folder.summary.exists() else RUNNING)),
                int(status.get("num_rounds", self._settings.get("num-rounds", 0))),
                status.get("version"),
                max(0.0, idle_s),
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MonitorError(f"{folder.nodes} is no status of a run: {error}") from None

    def _read_rounds(self) -> None:
        """Read the lines that were added; all lines if the file was replaced, as when a run is resumed."""
        if not self._folder.rounds.exists():
            return
        with self._folder.rounds.open("rb") as file:
            found = os.fstat(file.fileno())
            if (found.st_dev, found.st_ino) != self._file or found.st_size < self._offset:
                self._rounds, self._offset = [], 0
                self._file = found.st_dev, found.st_ino
            file.seek(self._offset)
            lines, newline, _ = file.read().rpartition(b"\n")  # the rest is a line that is being written
        for line in lines.splitlines():
            row = _parse(self._folder.rounds, line)
            try:
                self._rounds.append(from_row(RoundRecord, row))
            except TypeError as error:
                raise MonitorError(f"{self._folder.rounds} has a line that is no round: {error}") from None
        self._offset += len(lines) + len(newline)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise MonitorError(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise MonitorError(f"{path} holds {type(value).__name__}; an object is needed")
    return cast(dict[str, Any], value)


def _why_no_run(path: Path) -> str:
    runs = sorted(path.glob("*/settings.json"), key=lambda entry: (entry.parent.stat().st_mtime, entry))
    if runs:
        return (
            f"{path} holds {len(runs)} run{'s' if len(runs) > 1 else ''}; name one of them, such as {runs[-1].parent}"
        )
    found = "has no settings.json" if path.is_dir() else "is no folder"
    return f"{path} {found}; the folder of a run is needed, such as runs/digits-001"
