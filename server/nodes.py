"""The nodes of a run: waiting for them, and their order by partition, so that no run depends on Flower's random node ids.

Flower's strategies sample from the list of node ids.  If that list is in the order of partitions, the same seed samples
the same partitions in every run, and also in a study on `LocalGrid`, provided that all nodes are connected when they
are queried; `min-nodes` can wait for them.
"""

import sys
import time
from collections.abc import Iterable, Mapping
from logging import WARNING

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedcomp.flower import GridWrapper
from fedcomp.flower.compat import NodeInfo, log, raised_text

POLL_S = 0.2
MESSAGE_TYPE = "query.partition"
PARTITION_KEY = "partition-id"
COUNT_KEY = "num-partitions"
OWN_SAMPLES_KEY = "num-examples"
"""The metric of a node with samples of its own, which needs no partition."""
REFUSED_RECORD = "refused"
"""The record with the reason why a node cannot take part."""
MAX_REASON_CHARACTERS = 500
"""A node may send anything as its reason."""
TIMEOUT_S = 60.0
"""Enough for the first message to a node, which starts its ClientApp."""


def wait_for_nodes(grid: Grid, min_nodes: int, timeout_s: float) -> int:
    """Return the number of connected nodes once it is `min_nodes`; raise `ValueError` after `timeout_s` seconds.

    Flower's own sampling waits without a time limit.
    """
    deadline = time.monotonic() + timeout_s
    while (connected := len(list(grid.get_node_ids()))) < min_nodes:
        if time.monotonic() >= deadline:
            raise ValueError(f"{connected} nodes are connected after {timeout_s:g} s; min-nodes is {min_nodes}")
        time.sleep(POLL_S)
    return connected


def query_partitions(grid: Grid) -> tuple[dict[int, int], int | None]:
    """Return node id -> partition of the connected nodes that answer in time, and the number of partitions.

    The number is None if no node named it, or if the nodes disagree, which is logged, as two nodes with one partition are.
    Raises `ValueError` if every node answers that it cannot take part, for instance because its data are missing.
    """
    nodes = sorted(grid.get_node_ids())
    queries = [Message(RecordDict({"config": ConfigRecord()}), node, MESSAGE_TYPE) for node in nodes]
    replies = {reply.metadata.src_node_id: reply for reply in grid.send_and_receive(queries, timeout=TIMEOUT_S)}
    reasons = {node: reason for node, reply in replies.items() if (reason := _refusal(reply)) is not None}
    if nodes and len(reasons) == len(nodes):
        raise ValueError(f"no node can take part; node {nodes[0]} says: {reasons[nodes[0]]}")
    for node, reason in reasons.items():
        log(WARNING, "node %d cannot take part; it says: %s", node, reason)
    numbers = {node: _metric(reply, PARTITION_KEY) for node, reply in replies.items()}
    partitions = {node: number for node, number in numbers.items() if number is not None}
    counts = {count for reply in replies.values() if (count := _metric(reply, COUNT_KEY)) is not None}
    own = {node for node, reply in replies.items() if _metric(reply, OWN_SAMPLES_KEY) is not None}
    if unknown := len(nodes) - len(partitions.keys() | own | reasons.keys()):
        log(WARNING, "%d of %d nodes did not name their partition; they come last, by their ids", unknown, len(nodes))
    first: dict[int, int] = {}
    for node, number in sorted(partitions.items()):
        if node not in own and first.setdefault(number, node) != node:
            text = "nodes %d and %d both have partition-id %d, and train on the same samples; each node needs one of its own"
            log(WARNING, text, first[number], node, number)
            break
    if len(counts) > 1:
        text = "nodes have from %d to %d num-partitions, and may train on the same samples; the same number is needed"
        log(WARNING, text, min(counts), max(counts))
    return partitions, counts.pop() if len(counts) == 1 else None


def _metric(reply: Message, key: str) -> int | None:
    if not reply.has_content() or not isinstance(metrics := reply.content.get("metrics"), MetricRecord):
        return None
    number = metrics.get(key)
    return number if isinstance(number, int) else None


def _refusal(reply: Message) -> str | None:
    """Return the reason why a node cannot take part, as one short line, or `None` if it can.

    An error that Flower made for a node that did not answer is no reason.
    """
    if not reply.has_error():
        record = reply.content.get(REFUSED_RECORD)
        return _line(str(record.get("reason"))) if isinstance(record, ConfigRecord) else None
    text = raised_text(reply.error)
    return None if text is None else _line(text or "nothing")


def _line(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return plain if len(plain) <= MAX_REASON_CHARACTERS else f"{plain[:MAX_REASON_CHARACTERS]}..."


class OrderedGrid(GridWrapper):
    """A grid that lists its nodes in the order of `partitions`, by node id; nodes without a known partition come last."""

    def __init__(self, grid: Grid, partitions: Mapping[int, int]) -> None:
        super().__init__(grid)
        self._partitions = dict(partitions)

    def rank(self, node: int) -> int:
        """Return the partition of the node, or a larger number if it is unknown."""
        return self._partitions.get(node, sys.maxsize)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all connected nodes, in order."""
        return sorted(super().get_node_ids(), key=self._place)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what the grid tells of each connected node, in order."""
        return sorted(super().get_nodes(), key=lambda node: self._place(node.node_id))

    def _place(self, node: int) -> tuple[int, int]:
        return self.rank(node), node
