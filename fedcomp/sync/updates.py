"""Updates from nodes: checked, decoded and averaged sparsely, at O(kept) per node, in an order fixed by node id."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, Vector
from fedcomp.errors import CorruptError, LayoutError, StaleError, TruncatedError, VersionError
from fedcomp.quantized import QuantizedVector, Sparse, held_bytes
from fedcomp.sync.node_registry import NodeRecord
from fedcomp.sync.replica import Replica, split_payload
from fedcomp.wire import (
    BFLOAT16,
    FLAG_EXACT,
    FLAG_FIRST,
    SECONDS,
    Frame,
    Kind,
    Layout,
    Tensor,
    TensorFlags,
    bfloat16_to_float32,
    decode_body,
    tensors_in,
)

MAX_WEIGHT_MAGNITUDE = 1e15
"""The largest weight that an update may lead to, unless the published weight is larger.

It is far beyond any useful model, and small enough that sums over rounds, and the squares of a whole model, stay within
float32.
"""
MAX_FLOAT16 = float(np.finfo(np.float16).max)
MAX_SECONDS = 1e9
"""The longest time that a node may report."""

ExactArrays = dict[str, NDArray[Any]]
"""Exact tensors by name; a mean of them is float64."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a node learned: the `change` of the published vector, the `exact` tensors' bytes, and its seconds of work.

    `first` marks the first increment of an estimate that starts from zero.  The change counts `factor` times, which clips an
    update that is too long.  `tensors`, bool (t,), says which of the compressed tensors that have entries have changed; None if
    this is unknown.
    """

    change: QuantizedVector
    exact: bytes
    encode_seconds: float
    decode_seconds: float
    first: bool = False
    factor: float = 1.0
    tensors: TensorFlags | None = None

    @property
    def decoded_bytes(self) -> int:
        """The memory of the decoded change, in bytes."""
        return held_bytes(self.change)


@dataclass(frozen=True, slots=True, eq=False)
class Undecoded:
    """The quantized vector in the `frame` of an update, decoded each time it is used: in between it takes no memory.

    `published_exact` are the exact tensors of the model that the update starts from.
    """

    frame: Frame
    layout: Layout
    published_exact: bytes

    @property
    def n(self) -> int:
        """Entries of the vector, zeros included."""
        return self.layout.n

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self._decoded().dense()

    def sparse(self) -> Sparse | None:
        """Return the kept entries; None if the vector keeps all."""
        return self._decoded().sparse()

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector` (n,), in place and in the precision of `vector`."""
        self._decoded().add_to(vector, weight)

    def _decoded(self) -> QuantizedVector:
        return _parts_of(self.frame, self.layout, self.published_exact)[0]


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


def decode_update(frame: Frame, published: Replica, start_exact: bytes | None = None) -> Update:
    """Return the update in a frame that `check_reply` accepted, as an update of the published model.

    `start_exact` are the exact tensors of the version that the update starts from, by default the published ones.

    Raises `FedcompError` for a damaged frame, for an update that leads to weights or exact tensors beyond
    `MAX_WEIGHT_MAGNITUDE` or their dtype, and for an update within masks that the model no longer has.
    """
    start_exact = published.exact if start_exact is None else start_exact
    if len(frame.payload) < SECONDS.size:
        raise TruncatedError(f"{len(frame.payload)} bytes of update; the seconds alone need {SECONDS.size}")
    encode_seconds, decode_seconds = SECONDS.unpack_from(frame.payload)
    if not (0 <= encode_seconds < MAX_SECONDS and 0 <= decode_seconds < MAX_SECONDS):
        raise CorruptError(f"{encode_seconds:g} and {decode_seconds:g} seconds; 0 to {MAX_SECONDS:g} are possible")
    layout = published.layout
    if moved := _different_mask(start_exact, published.exact, layout):
        raise StaleError(f"the mask {moved!r} has moved since the version that it starts from")
    change, exact = _parts_of(frame, layout, start_exact)
    if frame.flags & FLAG_EXACT:
        layout.check_exact(exact)
        if other := _different_mask(exact, start_exact, layout):
            raise CorruptError(f"it holds another mask {other!r} than the one that was sent")
        exact = rebased_exact(exact, start_exact, published)
        _check_exact_magnitude(exact, published)
    else:
        exact = published.exact
    check_magnitude(change, published)
    tensors = tensors_in(frame.codec, frame.payload[SECONDS.size :], layout)
    return Update(change, exact, encode_seconds, decode_seconds, bool(frame.flags & FLAG_FIRST), tensors=tensors)


def _parts_of(frame: Frame, layout: Layout, start_exact: bytes) -> tuple[QuantizedVector, bytes]:
    """Return the change and the exact tensors in the frame of an update; `start_exact` if the frame holds none."""
    body, exact = split_payload(frame, frame.payload[SECONDS.size :], layout, start_exact)
    return decode_body(frame.codec, body, layout, layout.changeable(start_exact)), exact


def rebased_exact(exact: bytes, start: bytes, published: Replica) -> bytes:
    """Return published + (exact - start): apply to the published exact tensors the change that the node made to `start`.

    `start` holds the exact tensors of an older version.  Numbers are computed in float64; bools are taken from `exact`.
    """
    if start == published.exact:
        return exact
    layout = published.layout
    new, old, held = (_numbers(layout.unflatten_exact(each)) for each in (exact, start, published.exact))
    moved = {name: new[name] if new[name].dtype == bool else held[name] + (new[name] - old[name]) for name in held}
    return layout.exact_bytes(moved)


def _numbers(arrays: ExactArrays) -> ExactArrays:
    """Return the arrays in float64 or complex128; bools are unchanged."""
    arrays = arrays | float_values(arrays)
    return {name: array if array.dtype == bool else widened(array) for name, array in arrays.items()}


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` in float64, or in complex128 if it is complex."""
    return array.astype(np.result_type(array, np.float64))


def check_magnitude(change: QuantizedVector, published: Replica) -> None:
    """Raise `CorruptError` if `change` leads to a weight that is no number, or grows beyond `max_magnitude`."""
    sparse, layout = change.sparse(), published.layout
    values = change.dense() if sparse is None else sparse.values
    limits = np.array([max_magnitude(tensor) for tensor, _ in layout.parts])
    for start in range(0, values.size, BLOCK_ENTRIES):
        part = slice(start, start + BLOCK_ENTRIES)
        selection = part if sparse is None else sparse.indices[part]
        with np.errstate(over="ignore"):
            weights = published.vector[selection] + values[part]
        if max(weights.max(), -weights.min()) <= limits.min():
            continue
        indices = np.arange(start, start + weights.size) if sparse is None else sparse.indices[part]
        tensors = np.searchsorted([part.stop for _, part in layout.parts], indices, side="right")
        sizes = np.abs(weights)
        beyond = np.flatnonzero(~((sizes <= limits[tensors]) | (sizes <= np.abs(published.vector[selection]))))
        if beyond.size:
            raise _too_large("its update leads to a weight", layout.parts[tensors[beyond[0]]][0], weights[beyond[0]])


def _different_mask(exact: bytes, other: bytes, layout: Layout) -> str | None:
    """Return the name of a mask that differs: only the server changes masks, and a mean of masks is no mask."""
    if exact == other or not layout.masks:
        return None
    new, old = layout.unflatten_exact(exact), layout.unflatten_exact(other)
    return next((mask.name for mask in layout.masks if not np.array_equal(new[mask.name], old[mask.name])), None)


def _check_exact_magnitude(exact: bytes, published: Replica) -> None:
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


def weighted_mean(updates: Sequence[tuple[Update, float]], layout: Layout) -> tuple[Vector, ExactArrays]:
    """Return the mean of (update, weight) pairs: the mean change, float32 (n,), and the mean exact tensors, float64.

    The updates are summed in their order.  The weights are at least 0, and not all 0.  An exact tensor that is equal in all
    updates keeps its bits.
    """
    total = sum(weight for _, weight in updates)
    change = np.zeros(layout.n, np.float32)
    exact: ExactArrays = {}
    firsts: ExactArrays = {}
    for update, weight in updates:
        update.change.add_to(change, weight / total * update.factor)
        for name, array in _exact_values(update, layout).items():
            first = firsts.setdefault(name, widened(array))
            exact[name] = exact.get(name, first) + (widened(array) - first) * (weight / total)
    return change, exact


def dense_change(update: Update, layout: Layout) -> tuple[Vector, ExactArrays]:
    """Return the change of one update, float32 (n,), and its exact tensors."""
    change = np.zeros(layout.n, np.float32)
    update.change.add_to(change, update.factor)
    return change, _exact_values(update, layout)


def _exact_values(update: Update, layout: Layout) -> ExactArrays:
    arrays = layout.unflatten_exact(update.exact)
    return arrays | float_values(arrays)


def float_values(arrays: ExactArrays) -> ExactArrays:
    """Return the arrays of floats and of complex numbers among `arrays`, bfloat16 as float32."""
    values = {name: bfloat16_to_float32(a) if a.dtype == BFLOAT16 else a for name, a in arrays.items()}
    return {name: array for name, array in values.items() if array.dtype.kind in "fc"}
