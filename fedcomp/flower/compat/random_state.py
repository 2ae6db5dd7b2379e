"""A workaround: Flower's strategies draw nodes with Python's global random numbers, and so do others in the process.

Flower's heartbeat, for one, draws from a thread of its own: without this guard the same seed would pick other nodes in a run
with a SuperLink.  It becomes unnecessary once Flower's strategies take a random stream of their own.
"""

import random
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from flwr.proto.node_pb2 import NodeInfo

from fedcomp.flower.compat.grid_wrapper import GridWrapper


class IsolatedRandom:
    """A position in the sequence of the module `random` that moves only inside `used`; None until the first call."""

    def __init__(self) -> None:
        self.state: Any = None

    def hold(self) -> None:
        """Start at the module's current position, unless this has started before."""
        if self.state is None:
            self.state = random.getstate()

    @contextmanager
    def used(self) -> Generator[None, None, None]:
        """Let the module continue from this position inside the context; afterwards it is where it was."""
        self.hold()
        with _restored():
            random.setstate(self.state)
            try:
                yield
            finally:
                self.state = random.getstate()

    @contextmanager
    def handed_back(self) -> Generator[None]:
        """Let the module continue from this position after the block, if it moved there: the next run draws other nodes."""
        before = self.state
        try:
            yield
        finally:
            if self.state != before:
                random.setstate(self.state)


class RngPreservingGrid(GridWrapper):
    """A grid that restores the module `random` after listing the nodes: a SuperLink takes time, and others draw meanwhile."""

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all connected nodes."""
        with _restored():
            return list(super().get_node_ids())

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what the grid tells of each connected node."""
        with _restored():
            return list(super().get_nodes())


@contextmanager
def _restored() -> Generator[None]:
    """Leave the module `random` at the position where it was before the block."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
