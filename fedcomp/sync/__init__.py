"""Replicas that stay equal: versions, the log, routes, and updates that count exactly once.  Without flwr and torch.

A `Publisher` publishes a model version by version; each `Subscriber` follows it and sends updates.  Federated learning has one
publisher; in gossip, every node is one.
"""

from fedcomp.sync.apply import MakeStart, apply_frame, from_key_frame, from_start_frame, layout_in
from fedcomp.sync.clipping import Clipping, check_norm, scaled
from fedcomp.sync.encoding import check_masked, derive_seed, encode_change
from fedcomp.sync.history import History, Route
from fedcomp.sync.ledger import ROW, SAVED_PARTS, SERVER_NODE, Ledger, Traffic
from fedcomp.sync.mean import dense_change, end_in_zero, weighted_mean
from fedcomp.sync.node_registry import UNKNOWN_VERSION, NodeRegistry
from fedcomp.sync.origin import Origin
from fedcomp.sync.publisher import Publisher, Reply, first_number
from fedcomp.sync.record_sender import RecordSender, decode_record, why_uncompressed
from fedcomp.sync.replica import DeltaStep, FrameDecoder, Replica, split_payload, start_replica
from fedcomp.sync.reply_checks import MAX_WEIGHT_MAGNITUDE
from fedcomp.sync.stored_replica import from_stored, stored_arrays, stored_place
from fedcomp.sync.subscriber import Learned, Subscriber, resync
from fedcomp.sync.updates import Undecoded, Update, decode_update

__all__ = [
    "MAX_WEIGHT_MAGNITUDE",
    "ROW",
    "SAVED_PARTS",
    "SERVER_NODE",
    "UNKNOWN_VERSION",
    "Clipping",
    "DeltaStep",
    "FrameDecoder",
    "History",
    "Learned",
    "Ledger",
    "MakeStart",
    "NodeRegistry",
    "Origin",
    "Publisher",
    "RecordSender",
    "Replica",
    "Reply",
    "Route",
    "Subscriber",
    "Traffic",
    "Undecoded",
    "Update",
    "apply_frame",
    "check_masked",
    "check_norm",
    "decode_record",
    "decode_update",
    "dense_change",
    "derive_seed",
    "encode_change",
    "end_in_zero",
    "first_number",
    "from_key_frame",
    "from_start_frame",
    "from_stored",
    "layout_in",
    "resync",
    "scaled",
    "split_payload",
    "start_replica",
    "stored_arrays",
    "stored_place",
    "weighted_mean",
    "why_uncompressed",
]
