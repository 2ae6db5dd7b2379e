"""A Flower grid around another grid: a subclass overrides the one method that it changes."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedcomp.flower.compat.virtual_time import Clock, WallClock


class GridWrapper(Grid):
    """Passes every call on to the wrapped grid.

    Around one of Flower's own grids, `send_and_receive` asks for replies soon after they come: Flower's asks a SuperLink every
    three seconds.  A grid with a `send_and_receive` of its own waits as it says.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        """Return what the wrapped grid has beyond the methods of Flower's."""
        if name == "_grid":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._grid, name)

    @property
    def wrapped(self) -> Grid:
        """The wrapped grid."""
        return self._grid

    def set_run(self, run: Run) -> None:
        """Set the run of the grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the grid."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all connected nodes."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what the grid tells of each connected node."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages; return the replies that arrive within `timeout` seconds."""
        if not waits_as_flower_does(self._grid):
            return self._grid.send_and_receive(messages, timeout=timeout)
        waiting, clock = set(self._grid.push_messages(messages)), WallClock()
        replies, attempt, end_s = list[Message](), 0, clock.now() + (math.inf if timeout is None else timeout)
        late = False
        while waiting:
            pulled = list(self._grid.pull_messages(waiting))
            replies += pulled
            waiting.difference_update(reply.metadata.reply_to_message_id for reply in pulled)
            if not waiting or late:
                break
            self.arrive(pulled)  # may take long: the last question is after the end
            attempt = 0 if pulled else attempt + 1
            clock.wait(max(0.0, end_s - clock.now()), attempt)
            late = clock.now() >= end_s
        return replies

    def arrive(self, replies: Sequence[Message]) -> None:
        """Called by `send_and_receive` with replies that have arrived while others are awaited; a wrapped grid is told too."""
        if isinstance(self._grid, GridWrapper):
            self._grid.arrive(replies)


def waits_as_flower_does(grid: Grid) -> bool:
    """Return whether the `send_and_receive` of `grid` is Flower's: it pushes, and pulls now and then until all have come."""
    while isinstance(grid, GridWrapper) and type(grid).send_and_receive is GridWrapper.send_and_receive:
        grid = grid.wrapped
    return type(grid).send_and_receive.__module__.partition(".")[0] == "flwr"


def clock_of(grid: Grid) -> Clock:
    """Return the clock in whose time `grid` answers, wrapped or not."""
    while isinstance(grid, GridWrapper):
        grid = grid.wrapped
    return grid if isinstance(grid, Clock) else WallClock()
