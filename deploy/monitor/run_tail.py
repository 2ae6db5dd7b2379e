"""A run's folder, read while it grows: the rounds so far, and how its nodes stand."""

import json
import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from server.folder import RunFolder
from server.round_record import RoundRecord
from server.run_status import COMPLETED, RUNNING

_ROUND = tuple(field.name for field in fields(RoundRecord))


class WatchError(Exception):
    """A run cannot be watched; the text says why in one sentence."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """What ``nodes.json`` has of a node: as `NodeState`, and its partition if it said one; bytes and replies of the run."""

    node: int
    partition: int | None = None
    version: int | None = None
    heard: int | None = None
    absent: bool = False
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    catch_up_bytes: int = 0
    refused: int = 0
    failed: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at a moment: `state` is running, completed or failed, `idle_s` the seconds since it last wrote something."""

    name: str
    settings: dict[str, Any]
    rounds: tuple[RoundRecord, ...]
    nodes: tuple[NodeRow, ...]
    state: str
    num_rounds: int
    version: int | None
    idle_s: float


class RunTail:
    """Reads a run again and again, of its rounds only the new lines."""

    def __init__(self, path: Path) -> None:
        """Follow the run in the folder `path`; raise `WatchError` if there is none."""
        self._folder = RunFolder(path)
        self._rounds: list[RoundRecord] = []
        self._at = 0
        self._file: tuple[int, int] | None = None
        try:
            if not self._folder.settings.is_file():
                raise WatchError(_why_none(path))
            self._settings = _parse(self._folder.settings, self._folder.settings.read_bytes())
        except OSError as error:
            raise WatchError(f"{str(path)[:200]} cannot be read: {error.strerror}") from None

    def read(self) -> RunSnapshot:
        """Return the run as it is now; raise `WatchError` if its files cannot be read."""
        try:
            self._read_rounds()
            standings = self._standings()
            written = max((path.stat().st_mtime for path in self._written()), default=time.time())
        except OSError as error:
            raise WatchError(f"{self._folder.path} cannot be read: {error.strerror}") from None
        summary = (self._folder.path / "summary.json").exists()
        try:
            return RunSnapshot(
                self._folder.path.resolve().name,
                self._settings,
                tuple(self._rounds),
                tuple(map(_node, standings.get("nodes", ()))),
                str(standings.get("state", COMPLETED if summary else RUNNING)),
                int(standings.get("num_rounds", self._settings.get("num-rounds", 0))),
                standings.get("version"),
                max(0.0, time.time() - written),
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WatchError(f"{self._folder.nodes} is not what a run writes: {error}") from None

    def _written(self) -> list[Path]:
        files = (self._folder.settings, self._folder.rounds, self._folder.nodes)
        return [path for path in files if path.exists()]

    def _standings(self) -> dict[str, Any]:
        """Return ``nodes.json``; nothing for a run that has not begun, or of before there was one."""
        path = self._folder.nodes
        return _parse(path, path.read_bytes()) if path.exists() else {}

    def _read_rounds(self) -> None:
        """Take in what was added since; all of it anew where the file was replaced, as a resumed run does."""
        if not self._folder.rounds.exists():
            return
        with self._folder.rounds.open("rb") as file:
            found = os.fstat(file.fileno())
            if (found.st_dev, found.st_ino) != self._file or found.st_size < self._at:
                self._rounds, self._at = [], 0
                self._file = found.st_dev, found.st_ino
            file.seek(self._at)
            whole, newline, _ = file.read().rpartition(b"\n")  # half a line is being written
        for line in whole.splitlines():
            record = _parse(self._folder.rounds, line)
            try:
                known = {name: record[name] for name in _ROUND if name in record}
                if not all(isinstance(value, int | float | None) for value in known.values()):
                    raise TypeError(f"{known}; numbers are needed")
                self._rounds.append(RoundRecord(**known))
            except TypeError as error:
                raise WatchError(f"{self._folder.rounds} has a line that is no round: {error}") from None
        self._at += len(whole) + len(newline)


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise WatchError(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise WatchError(f"{path} holds {type(value).__name__}; an object is needed")
    return value


def _node(row: dict[str, Any]) -> NodeRow:
    known = {field.name: row[field.name] for field in fields(NodeRow) if field.name in row}
    if not all(isinstance(value, int | None) for value in known.values()):
        raise TypeError(f"a node is {known}; whole numbers are needed")
    return NodeRow(**known)


def _why_none(path: Path) -> str:
    if not path.is_dir():
        return f"{path} is no folder; a run's folder is needed, as runs/digits-001"
    runs = [entry.parent for entry in path.glob("*/settings.json")]
    if not runs:
        return f"{path} holds no run: it has no settings.json; a run's folder is needed, as runs/digits-001"
    newest = max(runs, key=lambda run: (run.stat().st_mtime, run))
    return f"{path} holds {len(runs)} run{'s' if len(runs) > 1 else ''}; name one of them, as {newest}"
