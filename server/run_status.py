"""Writes `nodes.json`, the current status of the run and of each node, for monitoring tools."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fedcomp.flower import CompressedStrategy, NodeState
from server.folder import RunFolder
from server.run_records import NodeStatus, to_row

MIN_PAUSE_S = 1.0
MAX_TIME_SHARE = 0.01
"""A study has thousands of short rounds: writing takes at most this share of the time."""
RUNNING, COMPLETED, FAILED, STOPPED = "running", "completed", "failed", "stopped"
MAX_FAILURE_CHARACTERS = 500
"""An exception may have any text."""


def mark_stopped(folder: RunFolder) -> None:
    """Write that the run in `folder` was stopped, if its server was ended before it could."""
    try:
        text = folder.nodes.read_bytes() if folder.nodes.exists() else b'{"state": "running", "nodes": []}'
        status: dict[str, Any] = json.loads(text)
    except ValueError:
        return
    if status.get("state") == RUNNING:
        folder.write(folder.nodes.name, (json.dumps({**status, "state": STOPPED}) + "\n").encode())


@dataclass(slots=True)
class RunStatus:
    """Replaces ``nodes.json`` as the run goes on: the state of the run, and a row for each node that is known.

    `strategy` is None for split learning, which has no versions, and counts its bytes for all nodes together.
    `partitions` maps node ids to partitions, `num_rounds` is the number of the last round.  As a context manager, it writes
    the file when it ends: the run has completed, has failed for a reason, or was stopped by a user.  Nothing is written
    before there is a model.
    """

    folder: RunFolder
    strategy: CompressedStrategy | None
    partitions: Mapping[int, int]
    num_rounds: int
    clock: Callable[[], float] = time.monotonic
    _written_at: float | None = None
    _pause_s: float = MIN_PAUSE_S

    def __enter__(self) -> "RunStatus":
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        if self._written_at is None:
            return
        if error is None:
            self._write(COMPLETED)
            return
        with suppress(OSError):  # of a full disk, which may be what ended the run
            if isinstance(error, Exception):
                self._write(FAILED, " ".join(str(error).split()) or type(error).__name__)
            else:  # a signal, or Flower's notice that its run was stopped
                self._write(STOPPED)

    def update(self) -> None:
        """Write the current state, unless it was written a moment ago."""
        if self._written_at is None or self.clock() - self._written_at >= self._pause_s:
            self._write(RUNNING)

    def _write(self, state: str, reason: str = "") -> None:
        begin = self.clock()
        known = self.strategy.nodes if self.strategy else {}
        rows: list[dict[str, object]] = []
        for node in sorted(self.partitions.keys() | known.keys()):
            last = known.get(node, NodeState())
            partition = self.partitions.get(node)
            rows.append(to_row(NodeStatus(node, partition, last.version, last.heard, last.absent, last.totals)))
        progress = {"num_rounds": self.num_rounds, "version": self.strategy.version if self.strategy else None}
        status = {"state": state, "reason": reason[:MAX_FAILURE_CHARACTERS], **progress, "nodes": rows}
        self.folder.write(self.folder.nodes.name, (json.dumps(status) + "\n").encode())
        self._written_at = self.clock()
        self._pause_s = max(MIN_PAUSE_S, (self._written_at - begin) / MAX_TIME_SHARE)
