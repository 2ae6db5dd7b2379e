"""Python's shared random numbers, as if nobody else drew from them.

Flower's strategies draw nodes from the module `random`, and so does its heartbeat, from a thread of its own and whenever it
likes: without this, the same seed would pick other nodes in a run that has a SuperLink.
"""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fedcomp.flower.grid_wrapper import GridWrapper


class IsolatedRandom:
    """A place in the sequence of the module `random` that moves only while it is `used`."""

    def __init__(self) -> None:
        """Begin where the module is when it is first used, or `hold` is called."""
        self.state: Any = None

    def hold(self) -> None:
        """Begin where the module is now, unless this has begun before."""
        if self.state is None:
            self.state = random.getstate()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the module go on from here for a while; to all others it is then where it was."""
        self.hold()
        outside = random.getstate()
        random.setstate(self.state)
        try:
            yield
        finally:
            self.state = random.getstate()
            random.setstate(outside)


class RngPreservingGrid(GridWrapper):
    """A grid that leaves the module `random` where it is: asking a SuperLink for its nodes takes time, and others draw then."""

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all connected nodes."""
        state = random.getstate()
        nodes = list(super().get_node_ids())
        random.setstate(state)
        return nodes
