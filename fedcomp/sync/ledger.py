"""What was really sent, by round and node: sums of ``len(bytes)``, never a formula."""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

ROW = np.dtype(
    [
        ("round", "<i8"),
        ("node", "<u8"),
        ("uplink_bytes", "<i8"),
        ("downlink_bytes", "<i8"),
        ("catch_up_bytes", "<i8"),
        ("dense_uplink_bytes", "<i8"),
        ("dense_downlink_bytes", "<i8"),
        ("refused", "<i8"),
        ("failed", "<i8"),
        ("missing", "<i8"),
        ("encode_seconds", "<f8"),
        ("decode_seconds", "<f8"),
    ]
)


@dataclass(slots=True)
class Traffic:
    """Sums over some part of a run.

    `downlink_bytes` has catch-up in it; `catch_up_bytes` are all frames but the newest delta: the price of absence, and of
    the first contact.  The dense bytes are those of the messages that plain Flower would have sent in their place.
    Replies that did not count: `refused` were dropped, `failed` were a node's own errors, `missing` did not come in time.
    """

    uplink_bytes: int = 0
    downlink_bytes: int = 0
    catch_up_bytes: int = 0
    dense_uplink_bytes: int = 0
    dense_downlink_bytes: int = 0
    refused: int = 0
    failed: int = 0
    missing: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def dense_bytes(self) -> int:
        """What plain Flower would have sent, both ways."""
        return self.dense_uplink_bytes + self.dense_downlink_bytes

    @property
    def ratio(self) -> float:
        """Dense bytes over sent bytes, both measured; NaN before anything was sent."""
        sent = self.uplink_bytes + self.downlink_bytes
        return self.dense_bytes / sent if sent else float("nan")


FIELDS = tuple(Traffic.__dataclass_fields__)
SERVER_NODE = 0
"""The node number of the server's own work."""


class Ledger:
    """Adds up transfers; `Totals` of the whole run are its attributes, of parts come from `by_round` and `by_node`."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self._total = Traffic()
        self._rounds: defaultdict[int, Traffic] = defaultdict(Traffic)
        self._nodes: defaultdict[int, Traffic] = defaultdict(Traffic)
        self._parts: defaultdict[int, defaultdict[int, Traffic]] = defaultdict(partial(defaultdict, Traffic))

    def add(self, server_round: int, node: int, **amounts: float) -> None:
        """Add amounts, by the names of `Totals`, to a round and node."""
        for sums in (self._total, self._rounds[server_round], self._nodes[node], self._parts[server_round][node]):
            for name, amount in amounts.items():
                setattr(sums, name, getattr(sums, name) + amount)

    def total(self) -> Traffic:
        """Return the sums over the run."""
        return replace(self._total)

    def of_round(self, server_round: int) -> Traffic:
        """Return the sums of one round."""
        return replace(self._rounds.get(server_round, Traffic()))

    def by_round(self) -> dict[int, Traffic]:
        """Return the sums of each round."""
        return {number: replace(part) for number, part in self._rounds.items()}

    def by_node(self) -> dict[int, Traffic]:
        """Return the sums of each node; `SERVER` stands for the server's own work."""
        return {node: replace(part) for node, part in self._nodes.items()}

    def by_round_and_node(self) -> dict[tuple[int, int], Traffic]:
        """Return the sums of each (round, node)."""
        return {(number, node): part for number in self._parts for node, part in self.nodes_of_round(number).items()}

    def nodes_of_round(self, server_round: int) -> dict[int, Traffic]:
        """Return the sums of each node in one round; `SERVER` stands for the server's own work."""
        return {node: replace(part) for node, part in self._parts.get(server_round, {}).items()}

    def __getattr__(self, name: str) -> float:
        """Return a sum over the run by its name in `Totals`."""
        if name in FIELDS or name in ("dense_bytes", "ratio"):
            return getattr(self._total, name)  # type: ignore[no-any-return]
        raise AttributeError(name)

    def to_array(self) -> NDArray[np.void]:
        """Return one row for each round and node, of dtype `ROW`."""
        parts = self.by_round_and_node()
        rows = [(*key, *(getattr(part, name) for name in FIELDS)) for key, part in parts.items()]
        return np.array(rows, ROW)

    @classmethod
    def from_array(cls, rows: NDArray[np.void]) -> "Ledger":
        """Return the ledger of which `to_array` gave `rows`; what an older one did not count is zero."""
        ledger = cls()
        names = [name for name in FIELDS if name in (rows.dtype.names or ())]
        for row in rows:
            ledger.add(int(row["round"]), int(row["node"]), **{name: row[name].item() for name in names})
        return ledger
