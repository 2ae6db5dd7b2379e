"""How a run and each of its nodes stand, in a file that is replaced as the run goes on: who watches reads it."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from fedcomp.flower import CompressedStrategy, NodeState
from fedcomp.sync import Traffic
from server.folder import RunFolder

EVERY_S = 1.0
MOST_OF_THE_TIME = 0.01
"""At most so often, and for at most that part of the time: a study has thousands of short rounds."""
RUNNING, COMPLETED, FAILED = "running", "completed", "failed"


class RunStatus:
    """Writes ``nodes.json``: the state of the run, and a row for each node that was asked or has said its partition.

    A context: when it ends, the file is as of then, and says whether the run completed.
    """

    def __init__(
        self,
        folder: RunFolder,
        strategy: CompressedStrategy,
        partitions: Mapping[int, int],
        num_rounds: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`partitions` maps node ids to partitions, `num_rounds` is the last round's number."""
        self._folder = folder
        self._strategy = strategy
        self._partitions = partitions
        self._num_rounds = num_rounds
        self._clock = clock
        self._written: float | None = None
        self._pause_s = EVERY_S

    def __enter__(self) -> "RunStatus":
        """Begin; nothing is written before the model is there."""
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Write the last state."""
        if self._written is not None:
            self._write(FAILED if failure else COMPLETED)

    def update(self) -> None:
        """Write the state, unless it was written a moment ago."""
        if self._written is None or self._clock() - self._written >= self._pause_s:
            self._write(RUNNING)

    def _write(self, state: str) -> None:
        begin = self._clock()
        known = self._strategy.nodes
        unknown = NodeState(None, None, False, Traffic())
        nodes = [
            {"node": node, "partition": self._partitions.get(node), **_row(known.get(node, unknown))}
            for node in sorted(self._partitions.keys() | known.keys())
        ]
        head = {"state": state, "num_rounds": self._num_rounds, "version": self._strategy.version}
        self._folder.write(self._folder.nodes.name, (json.dumps({**head, "nodes": nodes}) + "\n").encode())
        self._written = self._clock()
        self._pause_s = max(EVERY_S, (self._written - begin) / MOST_OF_THE_TIME)


def _row(state: NodeState) -> dict[str, object]:
    totals = asdict(state.totals)
    return {"version": state.version, "heard": state.heard, "absent": state.absent, **totals}
