"""The bytes that returning nodes fetch and send: `balanced()` and `auto()` keep them in balance."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from fedcomp.sync import SERVER_NODE, Traffic


@dataclass(slots=True)
class UnansweredFetch:
    """The `bytes` that a node has fetched from round `since` on, without an answer; `first` if its first model is in them."""

    since: int
    bytes: int = 0
    first: bool = False


class ReturningTraffic:
    """Adds up the bytes of nodes that held a model, and have answered with nothing that was refused.

    Without rounds, a node fetches in one round and answers in a later one: until then it is busy, and what it has fetched is
    kept.  `staleness` is the number of versions by which an answer may be late; one that was refused for that counts,
    because it has cost its bytes.  What a node has fetched that is not busy any more, and has not answered, does not count.
    """

    def __init__(self, staleness: int = 0) -> None:
        self._staleness = staleness
        self._open: dict[int, UnansweredFetch] = {}

    def take(self, server_round: int, traffic: Mapping[int, Traffic], busy: Set[int]) -> tuple[int, int]:
        """Return the bytes that nodes fetched and sent whose answers came in `server_round`, which is over.

        `traffic` is that of the round by node; `busy` are the nodes whose answers are still to come.
        """
        fetched = sent = 0
        before, self._open = self._open, {node: each for node, each in self._open.items() if node in busy}
        for node, row in traffic.items():
            if node == SERVER_NODE:
                continue
            each = before.get(node) or UnansweredFetch(server_round)
            each.bytes += row.downlink_bytes
            each.first |= bool(row.first_model_bytes)
            if not row.uplink_bytes:
                if node in busy:
                    self._open[node] = each
            elif not each.first and (not row.refused or server_round - each.since > self._staleness):
                fetched += each.bytes
                sent += row.uplink_bytes
        return fetched, sent
