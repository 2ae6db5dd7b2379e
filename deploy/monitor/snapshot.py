"""Reads the folder of a run, also while it grows: the rounds so far, and the status of its nodes."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from server.folder import RunFolder
from server.run_records import NodeStatus, RoundRecord, from_row
from server.run_status import COMPLETED, RUNNING


class MonitorError(Exception):
    """A run cannot be monitored; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment: `state` is running, completed, failed for a `reason`, or stopped; `idle_s`: since its last write."""

    name: str
    settings: dict[str, Any]
    rounds: tuple[RoundRecord, ...]
    nodes: tuple[NodeStatus, ...]
    state: str
    num_rounds: int
    version: int | None
    idle_s: float
    reason: str = ""
    lines: bytes = field(default=b"", repr=False)
    """The lines of the file that `rounds` were read from."""


def read_run(path: Path, before: RunSnapshot | None = None) -> RunSnapshot:
    """Return the run in the folder `path` as it is now; raise `MonitorError` if there is none, or it cannot be read.

    Of a run that was read `before`, only the lines are parsed that were added since.
    """
    folder = RunFolder(path)
    try:
        if not folder.settings.is_file():
            raise MonitorError(_why_no_run(path))
        written = [folder.settings, *(file for file in (folder.rounds, folder.nodes) if file.exists())]
        data = {file: file.read_bytes() for file in written}
        idle_s = time.time() - max(file.stat().st_mtime for file in written)
    except OSError as error:
        raise MonitorError(f"{str(path)[:200]} cannot be read: {error.strerror}") from None
    settings = _parse(folder.settings, data[folder.settings])
    status = _parse(folder.nodes, data.get(folder.nodes, b"{}"))
    text = data.get(folder.rounds, b"")
    lines = text[: text.rfind(b"\n") + 1]  # the rest is a line that is being written
    known = before if before and lines.startswith(before.lines) else None  # a run that was resumed has other lines
    added = lines.removeprefix(known.lines if known else b"").splitlines()
    try:
        rounds = tuple(from_row(RoundRecord, _parse(folder.rounds, line)) for line in added)
    except TypeError as error:
        raise MonitorError(f"{folder.rounds} has a line that is no round: {error}") from None
    try:
        return RunSnapshot(
            folder.path.resolve().name,
            settings,
            (known.rounds if known else ()) + rounds,
            tuple(from_row(NodeStatus, row) for row in status.get("nodes", ())),
            str(status.get("state", COMPLETED if folder.summary.exists() else RUNNING)),
            int(status.get("num_rounds", settings.get("num-rounds", 0))),
            status.get("version"),
            max(0.0, idle_s),
            str(status.get("reason", "")),
            lines,
        )
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MonitorError(f"{folder.nodes} is no status of a run: {error}") from None


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
    found = "has no settings.json" if path.is_dir() else "is no folder" if path.exists() else "does not exist"
    return f"{path} {found}; name the folder of a run, such as runs/digits-001"
