"""Checks of replies from nodes: does one answer the newest message, and does it lead to a possible model."""

from typing import Any

import numpy as np

from fedcomp.core import block_slices, on_host
from fedcomp.errors import CorruptError, DivergedError, LayoutError, StaleError, VersionError
from fedcomp.quantized import MAX_GAIN, CrossPolytope, Dense, QuantizedVector, Rotated
from fedcomp.sync.exact_tensors import float_values
from fedcomp.sync.node_registry import NodeRecord
from fedcomp.sync.replica import Replica
from fedcomp.wire import Frame, Kind, Layout, Tensor

MAX_WEIGHT_MAGNITUDE = 1e15
"""The largest weight that an update may lead to, unless the published one is larger.

Far beyond any useful model, and small enough that sums over rounds, and the squares of a whole model, stay within float32.
"""
MAX_FLOAT16 = float(np.finfo(np.float16).max)


def check_reply(frame: Frame, record: NodeRecord, layout: Layout) -> None:
    """Refuse a reply unless it answers the newest message to its node, for the first time, and starts from its version.

    Raises `CorruptError` for another kind of frame and for an ACK or RESYNC with a payload, otherwise `StaleError`,
    `LayoutError` or `VersionError`.
    """
    if frame.kind not in (Kind.UPDATE, Kind.ACK, Kind.RESYNC):
        raise CorruptError(f"a frame of kind {frame.kind.name} from a node; UPDATE, ACK or RESYNC is needed")
    if frame.after != record.number:
        raise StaleError(f"it answers message {frame.after}; the newest to this node is {record.number}")
    if frame.kind is not Kind.UPDATE and frame.payload:
        raise CorruptError(f"{len(frame.payload)} bytes of payload in a {frame.kind.name} frame; it has none")
    if frame.kind is Kind.RESYNC:
        return
    if frame.layout != layout.digest:
        raise LayoutError("it is for another model")
    sent = record.sent
    if (frame.version, frame.before) != (sent.version, sent.fingerprint):
        raise VersionError(
            f"it starts from version {frame.version} ({frame.before:016x}); "
            f"version {sent.version} ({sent.fingerprint:016x}) was sent"
        )
    if record.answered == frame.after:
        raise StaleError(f"message {frame.after} was answered before")


def is_surely_small(entries: QuantizedVector, published: Replica) -> bool:
    """Return whether the scales of rotated `entries` alone say that they lead to no weight that `check_magnitude` refuses."""
    if not isinstance(entries, CrossPolytope | Rotated):
        return False
    before = max(float(published.vector.max()), -float(published.vector.min()))
    largest = before + MAX_GAIN * float(np.abs(entries.scales).max())
    return largest <= min(max_magnitude(tensor) for tensor, _ in published.layout.parts)


def check_trained(change: Any, held: Replica) -> None:
    """Raise `DivergedError` for a `change`, numpy or torch, float32 (n,), that leads from `held` to a weight no server takes.

    In a residual, such a weight would be sent again and again, and refused with all that the node learns later.
    """
    largest = sum(max(float(vector.max()), -float(vector.min())) for vector in (change, held.vector))
    if largest <= min(max_magnitude(tensor) for tensor, _ in held.layout.filled):
        return
    try:
        check_magnitude(Dense(on_host(change)), held)
    except CorruptError as error:
        raise DivergedError(f"training has diverged: {error}") from None


def check_magnitude(change: QuantizedVector, published: Replica) -> None:
    """Raise `CorruptError` if `change` leads to a weight that is no number, or grows beyond `max_magnitude`."""
    layout, sparse = published.layout, change.sparse()
    values = change.dense() if sparse is None else sparse.values
    limits = np.array([max_magnitude(tensor) for tensor, _ in layout.parts])
    for part in block_slices(values.size):
        selection = part if sparse is None else sparse.indices[part]
        with np.errstate(over="ignore"):
            weights = published.vector[selection] + values[part]
        if max(weights.max(), -weights.min()) <= limits.min():
            continue
        indices = np.arange(part.start, part.stop, dtype=np.int64) if sparse is None else sparse.indices[part]
        tensors = np.searchsorted([part.stop for _, part in layout.parts], indices, side="right")
        sizes = np.abs(weights)
        beyond = np.flatnonzero(~((sizes <= limits[tensors]) | (sizes <= np.abs(published.vector[selection]))))
        if beyond.size:
            raise _too_large("its update leads to a weight", layout.parts[tensors[beyond[0]]][0], weights[beyond[0]])


def check_exact_magnitude(exact: bytes, published: Replica) -> None:
    """Raise `CorruptError` if an exact tensor holds a value that grows beyond `max_magnitude`."""
    layout = published.layout
    new, old = (float_values(layout.unflatten_exact(each)) for each in (exact, published.exact))
    for tensor in layout.exact_tensors:
        if tensor.name in new:
            values, before = np.abs(new[tensor.name]), np.abs(old[tensor.name])
            beyond = values[(values > max_magnitude(tensor)) & (values > before)]
            if beyond.size:
                raise _too_large("it holds", tensor, beyond[0])


def max_magnitude(tensor: Tensor) -> float:
    """Return the largest magnitude that an entry of `tensor` may grow to."""
    return MAX_FLOAT16 if tensor.dtype == "float16" else MAX_WEIGHT_MAGNITUDE


def _too_large(what: str, tensor: Tensor, value: object) -> CorruptError:
    return CorruptError(
        f"{what} of {value:g} in tensor {tensor.name!r}; at most {max_magnitude(tensor):g} is allowed in {tensor.dtype}"
    )
