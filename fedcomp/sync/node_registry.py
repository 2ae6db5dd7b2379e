"""The publisher's knowledge of each node: the version that it last confirmed, and the last update accepted from it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError
from fedcomp.wire import Ack

COLUMNS = (
    "node",
    "version",
    "fingerprint",
    "number",
    "acked_number",
    "acked_crc",
    "summed",
    "needs_key",
    "may_be_ahead",
    "returned",
)
ROW = np.dtype({"names": COLUMNS, "formats": ("<u8", "<i8", "<u8", "<u8", "<u8", "<u4", "?", "?", "?", "<f8")})
"""One row of `NodeRegistry.to_array`, as checkpoints hold it."""
UNKNOWN_VERSION = -1
"""The version of a node that has confirmed none."""


@dataclass(frozen=True, slots=True)
class SentModel:
    """The model in the newest message to a node: version, fingerprint, and until the node answers, its exact tensors."""

    version: int = UNKNOWN_VERSION
    fingerprint: int = 0
    exact: bytes = b""


@dataclass(slots=True)
class NodeRecord:
    """What is known of one node.

    `version` and `fingerprint`: the version that the node last confirmed.  `number`: the number of the newest message to the
    node, which held the model `sent`.  `answered`: the number of the last message that the node answered.

    `acked` names the node's last update that went into the model; `returned` is the share of this update that did not count.
    `summed` says that the strategy's sum holds increments from the node.  `needs_key` says that the node once could not follow:
    it gets no start frame any more.  `restarts` counts how often all estimates restarted because this node had lost its own,
    for the last time at version `restarted`; both are forgotten when the server ends.
    """

    version: int = UNKNOWN_VERSION
    fingerprint: int = 0
    number: int = 0
    sent: SentModel = field(default_factory=SentModel)
    answered: int = 0
    acked: Ack = field(default_factory=Ack)
    returned: float = 0.0
    summed: bool = False
    needs_key: bool = False
    restarts: int = 0
    restarted: int = 0

    @property
    def may_be_ahead(self) -> bool:
        """Whether the newest message has no answer yet: the node may hold a later version than it confirmed."""
        return self.number != self.answered


class NodeRegistry(dict[int, NodeRecord]):
    """Node id -> record; looking up a new node adds a record for it."""

    def __missing__(self, node: int) -> NodeRecord:
        self[node] = record = NodeRecord()
        return record

    def to_array(self) -> NDArray[np.void]:
        """Return one row per node, of dtype `ROW`."""
        rows = [
            (
                *(node, r.version, r.fingerprint, r.number, r.acked.number, r.acked.crc),
                *(r.summed, r.needs_key, r.may_be_ahead, r.returned),
            )
            for node, r in self.items()
        ]
        return np.array(rows, ROW)

    @classmethod
    def from_array(cls, rows: NDArray[np.void]) -> "NodeRegistry":
        """Return the registry that wrote `rows` with `to_array`, without the numbers of messages.

        Replies to messages of an earlier server process are refused: the node may already have taken that update back.
        """
        registry = cls()
        for row in rows:
            if not 0 <= (returned := float(row["returned"])) < 1:
                raise CorruptError(f"a returned share of {returned}; at least 0 and below 1 is needed")
            registry[int(row["node"])] = NodeRecord(
                int(row["version"]),
                int(row["fingerprint"]),
                answered=-1 if row["may_be_ahead"] else 0,
                acked=Ack(int(row["acked_number"]), int(row["acked_crc"])),
                returned=returned,
                summed=bool(row["summed"]),
                needs_key=bool(row["needs_key"]),
            )
        return registry
