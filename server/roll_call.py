"""Nodes in the order of their partitions, so that a run does not depend on the ids that Flower gave them.

Flower draws node ids at random, and its strategies draw nodes from the list of ids.  With the list in the order of
partitions, the same seed picks the same partitions in every run, and in a study on `LocalGrid` as well: as long as all
nodes were there when the roll was called, for which `min-nodes` can wait.
"""

import sys
from collections.abc import Iterable, Mapping
from logging import WARNING

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedcomp.flower.grid_around import GridAround

QUESTION = "query.partition"
TIMEOUT_S = 60.0
"""Enough for the first message to a node, which starts its ClientApp; a node that hangs holds the start no longer."""


def call_roll(grid: Grid) -> dict[int, int]:
    """Return node id -> partition of the connected nodes that answer in time."""
    nodes = sorted(grid.get_node_ids())
    questions = [Message(RecordDict({"config": ConfigRecord()}), node, QUESTION) for node in nodes]
    replies = grid.send_and_receive(questions, timeout=TIMEOUT_S)
    partitions = {reply.metadata.src_node_id: number for reply in replies if (number := _partition(reply)) is not None}
    if len(partitions) < len(nodes):
        log(
            WARNING,
            "%d of %d nodes did not say which partition they have; they come last, in the order of their ids",
            len(nodes) - len(partitions),
            len(nodes),
        )
    return partitions


def _partition(reply: Message) -> int | None:
    if not reply.has_content() or not isinstance(metrics := reply.content.get("metrics"), MetricRecord):
        return None
    number = metrics.get("partition-id")
    return number if isinstance(number, int) else None


class OrderedGrid(GridAround):
    """A grid with the ids of its nodes in the order of their partitions; nodes that were not asked come last."""

    def __init__(self, grid: Grid, partitions: Mapping[int, int]) -> None:
        """Wrap `grid`; `partitions` maps node ids to partitions."""
        super().__init__(grid)
        self._partitions = dict(partitions)

    def place(self, node: int) -> int:
        """Return a number that grows in the order of the nodes, the same for all that were not asked."""
        return self._partitions.get(node, sys.maxsize)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all connected nodes."""
        return sorted(super().get_node_ids(), key=lambda node: (self.place(node), node))
