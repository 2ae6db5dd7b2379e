"""Which nodes were asked, which answered, and when each last did, for operators."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from logging import INFO, WARNING

from flwr.app import Message

from fedcomp.core import listed
from fedcomp.flower.compat import UNAVAILABLE, log
from fedcomp.sync import SERVER_NODE, UNKNOWN_VERSION, Ledger, NodeRegistry, Traffic

MAX_NODES_LOGGED = 10
"""The most node ids in one log line."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What the server knows of one node.

    `version` is the version that it last confirmed, `heard` is the last round in which it answered; None if there is none.
    `absent` says that it did not answer the last time it was asked.  `totals` is its traffic.
    """

    version: int | None = None
    heard: int | None = None
    absent: bool = False
    totals: Traffic = field(default_factory=Traffic)


class Participation:
    """Counts per node the replies that are errors and those that did not arrive, and logs late nodes once per round."""

    def __init__(self, heard: Mapping[int, int] | None = None) -> None:
        """Start with the rounds in which nodes were last `heard` in an earlier run."""
        self.heard = dict(heard or {})
        self._absent: set[int] = set()
        self._asked: set[int] = set()

    def ask(self, nodes: Iterable[int], busy: Set[int] = frozenset()) -> None:
        """Expect replies from these nodes, and from those asked earlier that are still `busy`."""
        self._asked = set(nodes) | (self._asked & busy)

    def take(self, server_round: int, replies: Sequence[Message], ledger: Ledger, busy: Set[int] = frozenset()) -> int:
        """Add one `failed` to the ledger for each error of a node, and one `missing` for each expected reply that is absent.

        Replies of `busy` nodes are expected later.  Returns the number of nodes whose replies were expected by now.
        """
        answered = [reply for reply in replies if not (reply.has_error() and reply.error.code in UNAVAILABLE)]
        present = {reply.metadata.src_node_id for reply in answered}
        for reply in answered:
            if reply.has_error():
                ledger.add(server_round, reply.metadata.src_node_id, failed=1)
        expected = self._asked - busy
        late = expected - present
        for node in late:
            ledger.add(server_round, node, missing=1)
        if late:
            log(WARNING, "fedcomp: round %d: no answer in time from %s", server_round, names_of(late))
        if back := self._absent & present:
            log(INFO, "fedcomp: round %d: answering again: %s", server_round, names_of(back))
        self._absent = (self._absent | late) - present
        self._asked &= busy
        self.heard.update(dict.fromkeys(present, server_round))
        return len(expected)

    def states(self, registry: NodeRegistry, ledger: Ledger) -> dict[int, NodeState]:
        """Return node id -> state, for every node that was ever asked."""
        totals = ledger.by_node()
        versions = {node: record.version for node, record in registry.items()}
        return {
            node: NodeState(
                None if (version := versions.get(node, UNKNOWN_VERSION)) == UNKNOWN_VERSION else version,
                self.heard.get(node),
                node in self._absent,
                totals.get(node, Traffic()),
            )
            for node in sorted((versions.keys() | totals.keys()) - {SERVER_NODE})
        }


def names_of(nodes: set[int]) -> str:
    """Return the ids of `nodes` as text, the first `MAX_NODES_LOGGED` of them."""
    ids = [str(node) for node in sorted(nodes)]
    return f"node{'s' if len(ids) > 1 else ''} {listed(ids, MAX_NODES_LOGGED)}"
