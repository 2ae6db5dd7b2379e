"""Writes `nodes.json`, the current status of the run and of each node, for monitoring tools."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedcomp.flower import CompressedStrategy, NodeState
from server.folder import RunFolder
from server.run_records import NodeStatus, to_row

MIN_PAUSE_S = 1.0
MAX_TIME_SHARE = 0.01
"""A study has thousands of short rounds: writing takes at most this share of the time."""
RUNNING, COMPLETED, FAILED = "running", "completed", "failed"


@dataclass(slots=True)
class RunStatus:
    """Replaces ``nodes.json`` as the run goes on: the state of the run, and a row for each node that is known.

    `partitions` maps node ids to partitions, `num_rounds` is the number of the last round.  As a context manager, it writes
    the file when it ends, with whether the run completed; nothing is written before there is a model.
    """

    folder: RunFolder
    strategy: CompressedStrategy
    partitions: Mapping[int, int]
    num_rounds: int
    clock: Callable[[], float] = time.monotonic
    _written_at: float | None = None
    _pause_s: float = MIN_PAUSE_S

    def __enter__(self) -> "RunStatus":
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if self._written_at is not None:
            self._write(FAILED if failure else COMPLETED)

    def update(self) -> None:
        """Write the current state, unless it was written a moment ago."""
        if self._written_at is None or self.clock() - self._written_at >= self._pause_s:
            self._write(RUNNING)

    def _write(self, state: str) -> None:
        begin = self.clock()
        known = self.strategy.nodes
        rows: list[dict[str, object]] = []
        for node in sorted(self.partitions.keys() | known.keys()):
            last = known.get(node, NodeState())
            partition = self.partitions.get(node)
            rows.append(to_row(NodeStatus(node, partition, last.version, last.heard, last.absent, last.totals)))
        status = {"state": state, "num_rounds": self.num_rounds, "version": self.strategy.version, "nodes": rows}
        self.folder.write(self.folder.nodes.name, (json.dumps(status) + "\n").encode())
        self._written_at = self.clock()
        self._pause_s = max(MIN_PAUSE_S, (self._written_at - begin) / MAX_TIME_SHARE)
