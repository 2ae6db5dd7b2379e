"""The bytes that a run really sent, by round and node: sums of ``len(bytes)``, never a formula."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

SERVER_NODE = 0
"""The node number under which the server's own work is counted."""


@dataclass(slots=True)
class Traffic:
    """Sums over a part of a run: one round, one node, or all of it.

    `downlink_bytes` includes the frames beyond the newest delta.  For nodes that held nothing or could not follow, these are
    `first_model_bytes`; for the other nodes they are `catch_up_bytes`, the price of absence.

    By kind, frames down take `delta_bytes` in messages with one delta, `replay_bytes` in messages with several deltas or a
    replay, `jump_bytes`, and `key_bytes` for key frames and start frames.  The remaining bytes are heads of messages and dense
    records.  The dense bytes are those of the messages that plain Flower would have sent instead.

    `encode_seconds` and `decode_seconds` are CPU seconds of the thread that compresses a change, a version or jumps, and of the
    one that decodes frames and follows them.  Training, loading and saving of state, and Flower are not in them.

    Three fields count replies that were not used: `refused` replies were invalid, `failed` ones were errors of the node, and
    `missing` ones did not arrive in time.
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
    first_model_bytes: int = 0
    key_bytes: int = 0
    jump_bytes: int = 0
    delta_bytes: int = 0
    replay_bytes: int = 0

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
NODE_ROW = np.dtype([("node", "<u8"), *COLUMNS.items()])
"""One row of `Ledger.nodes_to_array`: the traffic of one node in the whole run."""
MAX_ROUNDS, MAX_PARTS = 1000, 100_000
"""A ledger holds the last rounds, and their parts by node: together at most about 50 MB."""
SAVED_PARTS = 4096
"""The parts that are saved with the sums; the parts of the last round always are."""
Key = tuple[int, int]
"""A round and a node id."""


class Ledger(Traffic):
    """The traffic of a run: its attributes are the sums over the whole run, and its methods return the sums of parts.

    The sums of each node are over the whole run, too.  Sums by round, and by round and node, are kept for the last `MAX_ROUNDS`
    rounds or fewer: memory does not grow with the rounds.  `take_new` returns the new amounts, for a record of all rounds
    elsewhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self._num_parts = 0
        self._new: defaultdict[Key, Traffic] | None = None
        self._rounds: defaultdict[int, Traffic] = defaultdict(Traffic)
        self._nodes: defaultdict[int, Traffic] = defaultdict(Traffic)
        self._parts: defaultdict[int, defaultdict[int, Traffic]] = defaultdict(
            partial(defaultdict[int, Traffic], Traffic)
        )

    def add(self, server_round: int, node: int, **amounts: float) -> None:
        """Add `amounts`, which have the names of the fields of `Traffic`, to a round and a node."""
        parts = self._parts[server_round]
        self._num_parts += node not in parts
        places = [self, self._rounds[server_round], self._nodes[node], parts[node]]
        if self._new is not None:
            places.append(self._new[server_round, node])
        for sums in places:
            for name, amount in amounts.items():
                setattr(sums, name, getattr(sums, name) + amount)
        while len(self._parts) > MAX_ROUNDS or (self._num_parts > MAX_PARTS and len(self._parts) > 1):
            oldest = min(self._parts)
            self._num_parts -= len(self._parts.pop(oldest))
            del self._rounds[oldest]

    def collect_new(self) -> None:
        """Begin to collect amounts for `take_new`, starting with the rounds that this ledger holds."""
        self._new = defaultdict(Traffic, {key: replace(part) for key, part in self.by_round_and_node().items()})

    def take_new(self) -> NDArray[np.void]:
        """Return the amounts added since the last call, or since `collect_new`, as rows of dtype `ROW`."""
        rows = _rows(self._new or {})
        self._new = defaultdict(Traffic)
        return rows

    def total(self) -> Traffic:
        """Return the sums over the run, as a copy."""
        return Traffic(*(getattr(self, name) for name in COLUMNS))

    def of_round(self, server_round: int) -> Traffic:
        """Return the sums of one of the last rounds."""
        return replace(self._rounds.get(server_round, Traffic()))

    def by_round(self) -> dict[int, Traffic]:
        """Return round -> sums over its nodes, for the last rounds."""
        return {number: replace(part) for number, part in self._rounds.items()}

    def by_node(self) -> dict[int, Traffic]:
        """Return node id -> sums over the run; `SERVER_NODE` is the server's own work."""
        return {node: replace(part) for node, part in self._nodes.items()}

    def nodes_of_round(self, server_round: int) -> dict[int, Traffic]:
        """Return node id -> sums of one of the last rounds; `SERVER_NODE` is the server's own work."""
        return {node: replace(part) for node, part in self._parts.get(server_round, dict[int, Traffic]()).items()}

    def by_round_and_node(self) -> dict[tuple[int, int], Traffic]:
        """Return (round, node id) -> sums, for the last rounds."""
        return {(number, node): part for number in self._parts for node, part in self.nodes_of_round(number).items()}

    def to_array(self, most: int = MAX_PARTS) -> NDArray[np.void]:
        """Return one row per round and node, of dtype `ROW`: the last rounds with about `most` parts, at least one round."""
        rounds: list[int] = []
        count = 0
        for number in sorted(self._parts, reverse=True):
            if rounds and count + len(self._parts[number]) > most:
                break
            rounds.append(number)
            count += len(self._parts[number])
        return _rows(
            {(number, node): part for number in reversed(rounds) for node, part in self._parts[number].items()}
        )

    def nodes_to_array(self) -> NDArray[np.void]:
        """Return one row per node, of dtype `NODE_ROW`."""
        return np.array([(node, *_amounts(part)) for node, part in self._nodes.items()], NODE_ROW)

    @classmethod
    def from_array(cls, rows: NDArray[np.void], nodes: NDArray[np.void] | None = None) -> "Ledger":
        """Return the ledger that wrote `rows` with `to_array`, and `nodes` with `nodes_to_array`.

        Without `nodes`, `rows` are those of the whole run.
        """
        ledger = cls()
        for row in rows:
            ledger.add(int(row["round"]), int(row["node"]), **_named(row))
        if nodes is not None:
            ledger._nodes = defaultdict(Traffic, {int(row["node"]): Traffic(**_named(row)) for row in nodes})
            for name in COLUMNS:
                setattr(ledger, name, sum(getattr(part, name) for part in ledger._nodes.values()))
        return ledger


def _rows(parts: Mapping[Key, Traffic]) -> NDArray[np.void]:
    return np.array([(*key, *_amounts(part)) for key, part in parts.items()], ROW)


def _amounts(part: Traffic) -> tuple[float, ...]:
    return tuple(getattr(part, name) for name in COLUMNS)


def _named(row: np.void) -> dict[str, Any]:
    return {name: row[name].item() for name in COLUMNS}
