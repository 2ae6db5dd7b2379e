"""What the server knows of each node: the version it last confirmed, and the uplink last taken from it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.wire import Ack

ROW = np.dtype(
    [
        ("node", "<u8"),
        ("version", "<i8"),
        ("fingerprint", "<u8"),
        ("number", "<u8"),
        ("taken_number", "<u8"),
        ("taken_crc", "<u4"),
        ("summed", "?"),
    ]
)
UNKNOWN_VERSION = -1
NOTHING = Ack()


@dataclass(slots=True)
class NodeRecord:
    """`version` and `fingerprint` as confirmed (`UNKNOWN` before); `number` of the newest instruction to the node.

    `answered` is the last instruction that the node answered, `taken` its last uplink that went into the model; `summed`
    says that increments of it are in the strategy's sum.
    """

    version: int = UNKNOWN_VERSION
    fingerprint: int = 0
    number: int = 0
    answered: int = 0
    acked: Ack = NOTHING
    summed: bool = False


class NodeRegistry(dict[int, NodeRecord]):
    """Node id -> standing; a node that is asked for and not there is unknown."""

    def __missing__(self, node: int) -> NodeRecord:
        """Enter an unknown node."""
        self[node] = standing = NodeRecord()
        return standing

    def to_array(self) -> NDArray[np.void]:
        """Return one row a node, of dtype `ROW`."""
        rows = [
            (node, s.version, s.fingerprint, s.number, s.acked.number, s.acked.crc, s.summed)
            for node, s in self.items()
        ]
        return np.array(rows, ROW)

    @classmethod
    def from_array(cls, rows: NDArray[np.void]) -> "NodeRegistry":
        """Return the roster of which `to_array` gave `rows`."""
        registry = cls()
        for node, version, fingerprint, number, acked_number, taken_crc, summed in rows.tolist():
            registry[node] = NodeRecord(version, fingerprint, number, acked=Ack(acked_number, taken_crc), summed=summed)
        return registry
