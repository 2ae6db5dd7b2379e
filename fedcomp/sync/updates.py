"""Updates that came back, summed as they are: O(kept) a node, in an order fixed by node id."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.errors import CorruptError, LayoutError, StaleError, TruncatedError, VersionError
from fedcomp.quantized import QuantizedVector
from fedcomp.sync.node_registry import NodeRecord
from fedcomp.sync.replica import Replica, split_payload
from fedcomp.wire import FLAG_EXACT, FLAG_FIRST, SECONDS, Frame, Kind, codec_by_id

MAX_WEIGHT_MAGNITUDE = 1e38
"""A magnitude that no weight of a model has for a good reason, and that sums of float32 do not overflow from."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a node learned: `sent` on top of the published vector, `exact` as it is; and its seconds of work.

    `first` says that it is the first increment of an estimate.
    """

    sent: QuantizedVector
    exact: bytes
    encode_seconds: float
    decode_seconds: float
    first: bool = False


def check_reply(frame: Frame, standing: NodeRecord, published: Replica) -> None:
    """Refuse a reply unless it answers the newest instruction to its node, once, from the published version."""
    if frame.kind not in (Kind.UPDATE, Kind.ACK, Kind.RESYNC):
        raise CorruptError(f"a frame of kind {frame.kind.name} from a node")
    if frame.after != standing.number:
        raise StaleError(f"it answers instruction {frame.after}; the newest to this node is {standing.number}")
    if frame.kind is not Kind.UPDATE and frame.payload:
        raise CorruptError(f"{len(frame.payload)} bytes of payload in a {frame.kind.name} frame; it has none")
    if frame.kind is Kind.RESYNC:
        return
    if frame.layout != published.layout.digest:
        raise LayoutError("it is for another model")
    if (frame.version, frame.before) != (published.version, published.fingerprint):
        raise VersionError(
            f"it starts from version {frame.version} ({frame.before:016x}); "
            f"version {published.version} ({published.fingerprint:016x}) was sent"
        )


def decode_update(frame: Frame, published: Replica) -> Update:
    """Return the update in a frame that `check` let pass."""
    if len(frame.payload) < SECONDS.size:
        raise TruncatedError(f"{len(frame.payload)} bytes of update; the seconds alone need {SECONDS.size}")
    encode_seconds, decode_seconds = SECONDS.unpack_from(frame.payload)
    if not (0 <= encode_seconds < 1e9 and 0 <= decode_seconds < 1e9):
        raise CorruptError("the seconds in an update are not a time")
    layout = published.layout
    body, exact = split_payload(frame, frame.payload[SECONDS.size :], layout, published.exact)
    sent = codec_by_id(frame.codec).decode(body, n=layout.n)
    if frame.flags & FLAG_EXACT:
        layout.check_exact(exact)
    _check_reach(sent, published)
    return Update(sent, exact, encode_seconds, decode_seconds, bool(frame.flags & FLAG_FIRST))


def _check_reach(sent: QuantizedVector, published: Replica) -> None:
    """Refuse an update that leads beyond `FURTHEST`: whatever models are averaged then, the mean is finite."""
    sparse = sent.sparse()
    values = sent.dense() if sparse is None else sparse.values
    for start in range(0, values.size, BLOCK_ENTRIES):
        part = slice(start, start + BLOCK_ENTRIES)
        with np.errstate(over="ignore"):
            reached = published.vector[part if sparse is None else sparse.indices[part]] + values[part]
        if not max(reached.max(), -reached.min()) <= MAX_WEIGHT_MAGNITUDE:
            raise CorruptError(f"its update leads to weights beyond {MAX_WEIGHT_MAGNITUDE:g}")


def updated_arrays(update: Update, published: Replica) -> dict[str, NDArray[Any]]:
    """Return the model that the node would have sent plain."""
    vector = published.vector.copy()
    update.sent.add_to(vector)
    return published.layout.unflatten(vector, update.exact)


def difference_arrays(update: Update, published: Replica) -> dict[str, NDArray[Any]]:
    """Return the update itself, tensor by tensor in float64; exact tensors as the node has them.

    A model, published plus update, loses what is small beside a weight: 1e-17 beside 1, also in float64.
    """
    differences, layout, offset = np.zeros(published.layout.n), published.layout, 0
    update.sent.add_to(differences)
    exact = layout.unflatten_exact(update.exact)
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in layout.tensors:
        if tensor.policy == "compressed":
            arrays[tensor.name] = differences[offset : offset + tensor.size].reshape(tensor.shape)
            offset += tensor.size
        elif tensor.policy == "exact":
            arrays[tensor.name] = exact[tensor.name]
    return arrays


def weighted_mean(updates: Sequence[tuple[Update, float]], published: Replica) -> dict[str, NDArray[Any]]:
    """Return the weighted mean model of `updates`, (update, weight) each, summed in their order."""
    layout = published.layout
    total = sum(weight for _, weight in updates)
    vector = np.zeros(layout.n, np.float32)
    exact: dict[str, NDArray[Any]] = {}
    for update, weight in updates:
        update.sent.add_to(vector, weight / total)
        for name, array in layout.unflatten_exact(update.exact).items():
            exact[name] = exact.get(name, 0) + array * (weight / total)
    vector += published.vector
    return layout.unflatten(vector, b"\0" * layout.exact_size) | exact
