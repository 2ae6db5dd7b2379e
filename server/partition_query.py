"""Nodes in the order of their partitions, so that a run does not depend on the ids that Flower gave them.

Flower draws node ids at random, and its strategies draw nodes from the list of ids.  With the list in the order of
partitions, the same seed picks the same partitions in every run, and in a study on `LocalGrid` as well: as long as all
nodes were there when the roll was called, for which `min-nodes` can wait.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from logging import WARNING

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedcomp.flower import GridWrapper
from fedcomp.flower._compat import ErrorCode, log

QUESTION = "query.partition"
PLACE = "partition-id"
OWN_SAMPLES = "num-examples"
"""What a node with samples of its own answers: it has no place among the others but that of its id."""
REFUSED = "refused"
"""The record in which a node says that it cannot take part, and why."""
LONGEST = 500
"""Letters of a node's reason that are shown: what comes from a node may be anything."""
TIMEOUT_S = 60.0
"""Enough for the first message to a node, which starts its ClientApp; a node that hangs holds the start no longer."""


def query_partitions(grid: Grid) -> dict[int, int]:
    """Return node id -> partition of the connected nodes that answer in time.

    Raises `ValueError` where every node answers that it cannot take part, as where all lack the data.
    """
    nodes = sorted(grid.get_node_ids())
    questions = [Message(RecordDict({"config": ConfigRecord()}), node, QUESTION) for node in nodes]
    replies = list(grid.send_and_receive(questions, timeout=TIMEOUT_S))
    reasons = {reply.metadata.src_node_id: reason for reply in replies if (reason := _refusal(reply)) is not None}
    if nodes and len(reasons) == len(nodes):
        raise ValueError(f"no node can take part; node {nodes[0]} says: {reasons[nodes[0]]}")
    for node, reason in reasons.items():
        log(WARNING, "node %d cannot take part; it says: %s", node, reason)
    partitions = {
        reply.metadata.src_node_id: number for reply in replies if (number := _told(reply, PLACE)) is not None
    }
    own = {reply.metadata.src_node_id for reply in replies if _told(reply, OWN_SAMPLES) is not None}
    silent = len(nodes) - len(partitions.keys() | own | reasons.keys())
    if silent:
        log(
            WARNING,
            "%d of %d nodes did not say which partition they have; they come last, in the order of their ids",
            silent,
            len(nodes),
        )
    return partitions


def _told(reply: Message, key: str) -> int | None:
    if not reply.has_content() or not isinstance(metrics := reply.content.get("metrics"), MetricRecord):
        return None
    number = metrics.get(key)
    return number if isinstance(number, int) else None


def _refusal(reply: Message) -> str | None:
    """Return why the node cannot take part, as one line that cannot be long; None where it can.

    An error that Flower made up for a node that does not answer says nothing of it.
    """
    if not reply.has_error():
        record = reply.content.get(REFUSED)
        return _line(str(record.get("reason"))) if isinstance(record, ConfigRecord) else None
    if reply.error.code not in (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.LOAD_CLIENT_APP_EXCEPTION):
        return None
    text = _line(reply.error.reason or "nothing")
    found = re.fullmatch(r"<class '[\w.]+'>:<'(.*)'>", text)
    return found[1] if found else text


def _line(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}..."


class OrderedGrid(GridWrapper):
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
