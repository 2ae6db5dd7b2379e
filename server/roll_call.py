"""Nodes in the order of their partitions, so that a run does not depend on the ids that Flower gave them.

Flower draws node ids at random, and its strategies draw nodes from the list of ids.  With the list in the order of
partitions, the same seed picks the same partitions in every run, and in a study on `LocalGrid` as well.
"""

import sys
from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

QUESTION = "query.partition"
LEAST_TIMEOUT_S = 30.0


def call_roll(grid: Grid, timeout_s: float) -> dict[int, int]:
    """Return node id -> partition of the connected nodes that answer within `timeout_s` seconds (30 at the least)."""
    nodes = sorted(grid.get_node_ids())
    questions = [Message(RecordDict({"config": ConfigRecord()}), node, QUESTION) for node in nodes]
    replies = grid.send_and_receive(questions, timeout=max(timeout_s, LEAST_TIMEOUT_S))
    return {reply.metadata.src_node_id: number for reply in replies if (number := _partition(reply)) is not None}


def _partition(reply: Message) -> int | None:
    if not reply.has_content() or not isinstance(metrics := reply.content.get("metrics"), MetricRecord):
        return None
    number = metrics.get("partition-id")
    return number if isinstance(number, int) else None


class OrderedGrid(Grid):
    """`grid`, with the ids of its nodes in the order of their partitions; nodes that were not asked come last."""

    def __init__(self, grid: Grid, partitions: Mapping[int, int]) -> None:
        """`partitions` maps node ids to partitions."""
        self._grid = grid
        self._partitions = dict(partitions)

    def place(self, node: int) -> int:
        """Return a number that grows in the order of the nodes, the same for all that were not asked."""
        return self._partitions.get(node, sys.maxsize)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all connected nodes."""
        return sorted(self._grid.get_node_ids(), key=lambda node: (self.place(node), node))

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

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; return their ids."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that come within `timeout` seconds."""
        return self._grid.send_and_receive(messages, timeout=timeout)
