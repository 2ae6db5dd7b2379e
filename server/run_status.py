"""Writes `nodes.json`, the current status of the run and of each node, for monitoring tools."""

import json
import time
from collections.abc import Callable, Mapping

from fedcomp.flower import CompressedStrategy, NodeState
from server.folder import RunFolder
from server.run_records import NodeStatus, to_row

MIN_PAUSE_S = 1.0
MAX_TIME_SHARE = 0.01
"""A study has thousands of short rounds: writing takes at most this share of the time."""
RUNNING, COMPLETED, FAILED = "running", "completed", "failed"


class RunStatus:
    """Replaces ``nodes.json`` as the run goes on: the state of the run, and a row for each node that is known.

    As a context manager, it writes the file when it ends, with whether the run completed.
    """

    def __init__(
        self,
        folder: RunFolder,
        strategy: CompressedStrategy,
        partitions: Mapping[int, int],
        num_rounds: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to `folder`; `partitions` maps node ids to partitions, `num_rounds` is the number of the last round."""
        self._folder = folder
        self._strategy = strategy
        self._partitions = partitions
        self._num_rounds = num_rounds
        self._clock = clock
        self._written_at: float | None = None
        self._pause_s = MIN_PAUSE_S

    def __enter__(self) -> "RunStatus":
        """Return itself; nothing is written before there is a model."""
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Write the final state."""
        if self._written_at is not None:
            self._write(FAILED if failure else COMPLETED)

    def update(self) -> None:
        """Write the current state, unless it was written a moment ago."""
        if self._written_at is None or self._clock() - self._written_at >= self._pause_s:
            self._write(RUNNING)

    def _write(self, state: str) -> None:
        begin = self._clock()
        known = self._strategy.nodes
        rows = [
            to_row(_status(node, self._partitions.get(node), known.get(node)))
            for node in sorted(self._partitions.keys() | known.keys())
        ]
        head = {"state": state, "num_rounds": self._num_rounds, "version": self._strategy.version}
        self._folder.write(self._folder.nodes.name, (json.dumps({**head, "nodes": rows}) + "\n").encode())
        self._written_at = self._clock()
        self._pause_s = max(MIN_PAUSE_S, (self._written_at - begin) / MAX_TIME_SHARE)


def _status(node: int, partition: int | None, known: NodeState | None) -> NodeStatus:
    if known is None:
        return NodeStatus(node, partition)
    return NodeStatus(node, partition, known.version, known.heard, known.absent, known.totals)
