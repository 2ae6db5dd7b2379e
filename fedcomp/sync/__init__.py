"""How replicas stay equal: versions, the log, routes, and updates taken exactly once.  It needs neither flwr nor torch."""

from fedcomp.sync.history import History
from fedcomp.sync.ledger import SERVER_NODE, Ledger, Traffic
from fedcomp.sync.node_registry import UNKNOWN_VERSION, NodeRegistry
from fedcomp.sync.publisher import Publisher
from fedcomp.sync.replica import (
    DeltaStep,
    FrameDecoder,
    Replica,
    apply_frame,
    from_key_frame,
    split_payload,
    start_replica,
)
from fedcomp.sync.updates import Update, check_reply, decode_update, difference_arrays, updated_arrays, weighted_mean

__all__ = [
    "SERVER_NODE",
    "UNKNOWN_VERSION",
    "DeltaStep",
    "FrameDecoder",
    "History",
    "Ledger",
    "NodeRegistry",
    "Publisher",
    "Replica",
    "Traffic",
    "Update",
    "apply_frame",
    "check_reply",
    "decode_update",
    "difference_arrays",
    "from_key_frame",
    "split_payload",
    "start_replica",
    "updated_arrays",
    "weighted_mean",
]
