"""The bytes that a run really sent, by round and node: sums of ``len(bytes)``, never a formula."""

from collections import defaultdict
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

SERVER_NODE = 0
"""The node number under which the server's own work is counted."""


@dataclass(slots=True)
class Traffic:
    """Sums over a part of a run: one round, one node, or all of it.

    `downlink_bytes` includes `catch_up_bytes`: all frames but the newest delta, so the price of absence and of the first
    contact.  The dense bytes are those of the messages that plain Flower would have sent instead.
    Three counts are of replies that were not used: `refused` were invalid, `failed` were errors of the node, `missing` did
    not arrive in time.
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
    def sent_bytes(self) -> int:
        """The bytes sent, both ways."""
        return self.uplink_bytes + self.downlink_bytes

    @property
    def dense_bytes(self) -> int:
        """The bytes that plain Flower would have sent, both ways."""
        return self.dense_uplink_bytes + self.dense_downlink_bytes

    @property
    def ratio(self) -> float:
        """Dense bytes over sent bytes, both measured; NaN before anything was sent."""
        return self.dense_bytes / self.sent_bytes if self.sent_bytes else float("nan")


COLUMNS = {field.name: "<i8" if field.type is int else "<f8" for field in fields(Traffic)}
"""Name -> numpy dtype of each field of `Traffic`."""
ROW = np.dtype([("round", "<i8"), ("node", "<u8"), *COLUMNS.items()])
"""One row of `Ledger.to_array`: the traffic of one node in one round."""


class Ledger(Traffic):
    """The traffic of a run: the sums over the whole run as attributes, and those of its parts from methods."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds: defaultdict[int, Traffic] = defaultdict(Traffic)
        self._nodes: defaultdict[int, Traffic] = defaultdict(Traffic)
        self._parts: defaultdict[int, defaultdict[int, Traffic]] = defaultdict(
            partial(defaultdict[int, Traffic], Traffic)
        )

    def add(self, server_round: int, node: int, **amounts: float) -> None:
        """Add `amounts`, named as the fields of `Traffic`, to a round and a node."""
        for sums in (self, self._rounds[server_round], self._nodes[node], self._parts[server_round][node]):
            for name, amount in amounts.items():
                setattr(sums, name, getattr(sums, name) + amount)

    def total(self) -> Traffic:
        """Return the sums over the run, as a copy."""
        return Traffic(*(getattr(self, name) for name in COLUMNS))

    def of_round(self, server_round: int) -> Traffic:
        """Return the sums of one round."""
        return replace(self._rounds.get(server_round, Traffic()))

    def by_round(self) -> dict[int, Traffic]:
        """Return round -> sums over its nodes."""
        return {number: replace(part) for number, part in self._rounds.items()}

    def by_node(self) -> dict[int, Traffic]:
        """Return node id -> sums over the run; `SERVER_NODE` is the server's own work."""
        return {node: replace(part) for node, part in self._nodes.items()}

    def nodes_of_round(self, server_round: int) -> dict[int, Traffic]:
        """Return node id -> sums of one round; `SERVER_NODE` is the server's own work."""
        return {node: replace(part) for node, part in self._parts.get(server_round, dict[int, Traffic]()).items()}

    def by_round_and_node(self) -> dict[tuple[int, int], Traffic]:
        """Return (round, node id) -> sums."""
        return {(number, node): part for number in self._parts for node, part in self.nodes_of_round(number).items()}

    def to_array(self) -> NDArray[np.void]:
        """Return one row per round and node, of dtype `ROW`."""
        rows = [(*key, *(getattr(part, name) for name in COLUMNS)) for key, part in self.by_round_and_node().items()]
        return np.array(rows, ROW)

    @classmethod
    def from_array(cls, rows: NDArray[np.void]) -> "Ledger":
        """Return the ledger that wrote `rows` with `to_array`; columns that an older version did not count are zero."""
        ledger = cls()
        names = [name for name in COLUMNS if name in (rows.dtype.names or ())]
        for row in rows:
            ledger.add(int(row["round"]), int(row["node"]), **{name: row[name].item() for name in names})
        return ledger
