"""Which nodes were asked, which answered, and when last: what an operator wants to know of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING

from flwr.app import Message

from fedcomp.flower._compat import ErrorCode, log
from fedcomp.sync import SERVER_NODE, UNKNOWN_VERSION, Ledger, NodeRegistry, Traffic

UNAVAILABLE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""The errors that Flower makes up for a node that does not answer."""
MAX_NODES_LOGGED = 10
"""So many nodes are named in a line of the log."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the server knows of one node.

    `version` is the one that it last confirmed, `heard` the last round in which it answered; `None` before.  `absent` says
    that it did not answer when it was asked last.  `totals` are its transfers, and the replies that were lost.
    """

    version: int | None
    heard: int | None
    absent: bool
    totals: Traffic


class Participation:
    """Counts, per node, replies that are errors and replies that did not come; says once a round who is late."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        """Begin with what a ledger of before has of each node."""
        self.heard: dict[int, int] = {}
        self._absent: set[int] = set()
        self._asked: set[int] = set()
        for (server_round, node), part in ledger.by_round_and_node().items() if ledger else ():
            if part.uplink_bytes or part.failed:
                self.heard[node] = max(server_round, self.heard.get(node, 0))

    def ask(self, nodes: Iterable[int]) -> None:
        """Expect replies of these nodes, and of no others."""
        self._asked = set(nodes)

    def take(self, server_round: int, replies: Sequence[Message], ledger: Ledger) -> None:
        """Book what came and what did not: `failed` for an error of the node's own, `missing` for silence."""
        answered = [reply for reply in replies if not (reply.has_error() and reply.error.code in UNAVAILABLE)]
        present = {reply.metadata.src_node_id for reply in answered}
        for reply in answered:
            if reply.has_error():
                ledger.add(server_round, reply.metadata.src_node_id, failed=1)
        late = self._asked - present
        for node in late:
            ledger.add(server_round, node, missing=1)
        if late:
            log(WARNING, "fedcomp: round %d: no answer in time from %s", server_round, _names(late))
        if back := self._absent & present:
            log(INFO, "fedcomp: round %d: heard of again: %s", server_round, _names(back))
        self._absent = (self._absent | late) - present
        self._asked = set()
        self.heard.update(dict.fromkeys(present, server_round))

    def states(self, registry: NodeRegistry, ledger: Ledger) -> dict[int, NodeState]:
        """Return node id -> what is known of it, of every node that was ever asked."""
        totals = ledger.by_node()
        versions = {node: standing.version for node, standing in registry.items()}
        return {
            node: NodeState(
                None if (version := versions.get(node, UNKNOWN_VERSION)) == UNKNOWN_VERSION else version,
                self.heard.get(node),
                node in self._absent,
                totals.get(node, Traffic()),
            )
            for node in sorted((versions.keys() | totals.keys()) - {SERVER_NODE})
        }


def _names(nodes: set[int]) -> str:
    """Return the ids of nodes, the first of them where there are many."""
    ids = [str(node) for node in sorted(nodes)]
    more = f" and {len(ids) - MAX_NODES_LOGGED} more" if len(ids) > MAX_NODES_LOGGED else ""
    return f"node{'s' if len(ids) > 1 else ''} {', '.join(ids[:MAX_NODES_LOGGED])}{more}"
