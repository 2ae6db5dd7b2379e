"""A further record in replies, such as SCAFFOLD's control variates: compressed with a memory of its own, exactly once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError, LayoutError, StaleError, TruncatedError
from fedcomp.memory import State
from fedcomp.methods import parse
from fedcomp.quantized import QuantizedVector, Sparse
from fedcomp.sync.encoding import encode_change
from fedcomp.sync.exact_tensors import float_values
from fedcomp.sync.replica import LENGTH, Replica, split_payload
from fedcomp.sync.reply_checks import MAX_WEIGHT_MAGNITUDE, max_magnitude
from fedcomp.sync.subscriber import known_compressor
from fedcomp.wire import (
    FLAG_EXACT,
    Frame,
    Kind,
    Layout,
    decode_body,
    layout_of,
    parse_layout,
    parse_single_frame,
    to_numpy,
)

MAX_MODELS_PER_RECORD = 4
"""A record may have this many times the entries of the model, and this many times its tensors."""
MIN_RECORD_LIMIT = 1 << 16
"""Entries that a record may have, however small the model is."""
MIN_TENSOR_LIMIT = 256
"""Tensors that a record may have, however few the model has."""

MAX_OWED_MAGNITUDE = 1e6 * MAX_WEIGHT_MAGNITUDE
"""The largest value of a message: with error feedback it may exceed the range of the record, but not this bound."""


@dataclass(slots=True)
class RecordSender:
    """The memory of one record's compressor, and its last frame until the server has accepted the reply that holds it.

    `pending` is the frame in the answer to message `pending_number`, empty if there is none.  `uplink` is the compressor that
    made this frame.  `layout` is the layout of the record, None before the first record.
    """

    memory: State = field(default_factory=dict[str, Any])
    pending: bytes = b""
    pending_number: int = 0
    uplink: str = ""
    layout: Layout | None = None

    def settle(self, accepted: int) -> None:
        """Forget the pending frame if it belongs to the answer to message `accepted`; otherwise return it to the memory."""
        if self.pending and self.pending_number != accepted and self.layout is not None:
            frame = parse_single_frame(self.pending)
            body, _ = split_payload(frame, _layout_and_rest(frame)[1], self.layout, b"")
            lost, memory = decode_body(frame.codec, body, self.layout), parse(self.uplink).memory
            self.memory |= memory.rollback(lost, self.memory)
            if (excess := _excess(lost, self.layout)) is not None:  # it was never sent
                self.memory |= memory.rollback(replace(excess, values=-excess.values), self.memory)
        self.pending, self.pending_number = b"", 0

    def encode(self, arrays: Mapping[str, NDArray[Any]], uplink: str, model: Replica, number: int, seed: int) -> bytes:
        """Return the frame of the record `arrays` in the answer to message `number`, and keep it as `pending`.

        The compressor `uplink` encodes floating tensors as one vector; other tensors are sent unchanged.  If an entry would be
        beyond its dtype, the excess stays in the memory.  A tensor of zeros is left out if the memory holds nothing of it.  A
        record of other tensors than the last one empties the memory.

        Raises:
            UnknownFormatError: The compressor is unknown here.
            DivergedError: The record holds a number that cannot be sent; the memory is unchanged.

        """
        layout = layout_of(arrays)
        if self.layout is not None and set(self.layout.tensors) == set(layout.tensors):
            layout = self.layout  # the same tensors, in any order
        vector, exact = layout.flatten(arrays)
        compressor = known_compressor(uplink)
        held = self.memory if layout == self.layout else {}
        # Before encoding, which spends `held`.
        owed = sum(float(np.linalg.norm(to_numpy(array))) for array in (vector, *held.values()))
        codec, body, state = encode_change(compressor, vector, held, layout, seed=seed, server_round=model.version)
        # Entries of a message are below 1e6 times the norms of all vectors, and so most records stay within their dtypes.
        if not 1e6 * owed <= min(max_magnitude(tensor) for tensor, _ in layout.parts):
            sent = decode_body(codec, body, layout)
            if (excess := _excess(sent, layout)) is not None:
                state = state | compressor.memory.rollback(excess, state)
        self.memory = held | state
        self.layout, self.uplink, self.pending_number = layout, uplink, number
        text = b"" if layout == model.layout else layout.text
        payload = b"".join((LENGTH.pack(len(text)), text, body, exact))
        here = (model.version, model.version, layout.digest, model.fingerprint)
        self.pending = Frame(Kind.UPDATE, codec, FLAG_EXACT if exact else 0, *here, number, payload).to_bytes()
        return self.pending


def decode_record(data: bytes, number: int, model: Layout) -> dict[str, NDArray[Any]]:
    """Return the tensors of the record that `RecordSender.encode` wrote in the answer to message `number`.

    Raises `FedcompError` for damaged bytes and for the answer to another message.  A record that is too large compared with
    the `model` is refused before any memory is taken.  Values beyond their dtype become the largest value of the dtype.
    """
    frame = parse_single_frame(data)
    if frame.kind is not Kind.UPDATE:
        raise CorruptError(f"a frame of kind {frame.kind.name}; UPDATE is needed")
    if frame.after != number:
        raise StaleError(f"it answers message {frame.after}; the reply answers {number}")
    text, rest = _layout_and_rest(frame)
    layout = parse_layout(text) if text else model
    if layout.digest != frame.layout:
        raise LayoutError("its layout does not fit the digest in its head")
    if layout.n > (limit := _most_entries(model)) or not all(
        t.policy in ("compressed", "exact") for t in layout.tensors
    ):
        raise CorruptError(f"{layout.n} entries; at most {limit} are possible, and no tied or local tensors")
    if len(layout.tensors) > (most := _most_tensors(model)):
        raise CorruptError(f"{len(layout.tensors)} tensors; at most {most} are possible")
    if bool(frame.flags & FLAG_EXACT) != bool(layout.exact_size):
        raise CorruptError(f"the frame's flags do not fit its {layout.exact_size} bytes of exact tensors")
    body, exact = split_payload(frame, rest, layout, b"")
    layout.check_exact(exact)
    vector = np.zeros(layout.n, np.float32)
    decode_body(frame.codec, body, layout).add_to(vector)
    if not float(np.abs(vector).max(initial=0)) <= MAX_OWED_MAGNITUDE:
        raise CorruptError(f"it holds values beyond {MAX_OWED_MAGNITUDE:g}")
    for tensor, part in layout.parts:
        np.clip(vector[part], -max_magnitude(tensor), max_magnitude(tensor), out=vector[part])
    return layout.unflatten(vector, exact)


def why_uncompressed(arrays: Mapping[str, NDArray[Any]], model: Layout) -> str:
    """Return why the record `arrays` cannot be compressed next to a model of the layout `model`; empty if it can be."""
    if not any(array.size and array.dtype.kind not in "iub" for array in arrays.values()):
        return "it has no floating numbers"
    try:
        layout = layout_of(arrays)
    except ValueError as error:
        return str(error)
    if not all(tensor.is_valid() for tensor in layout.tensors):
        return "a tensor has more dimensions than can be sent"
    if layout.n > (limit := _most_entries(model)):
        return f"{layout.n} entries; next to this model, at most {limit} can be compressed"
    if len(layout.tensors) > (most := _most_tensors(model)):
        return f"{len(layout.tensors)} tensors; next to this model, at most {most} can be compressed"
    for tensor in layout.tensors:
        values = float_values({tensor.name: arrays[tensor.name]}).get(tensor.name)
        if values is not None and (np.isfinite(values) & (np.abs(values) > max_magnitude(tensor))).any():
            return f"its tensor {tensor.name!r} holds values beyond {max_magnitude(tensor):g}"
    return ""


def _excess(vector: QuantizedVector, layout: Layout) -> Sparse | None:
    """Return the excess of entries of `vector` beyond the range of a record of this layout; None if there is none."""
    sparse = vector.sparse()
    values = vector.dense() if sparse is None else sparse.values
    limits = np.array([max_magnitude(tensor) for tensor, _ in layout.parts], np.float32)
    if not values.size or np.abs(values).max() <= limits.min():
        return None
    indices = np.arange(layout.n) if sparse is None else sparse.indices
    limit = limits[np.searchsorted([part.stop for _, part in layout.parts], indices, side="right")]
    excess = values - np.clip(values, -limit, limit)
    return Sparse(layout.n, indices[excess != 0], excess[excess != 0])


def _most_entries(model: Layout) -> int:
    return max(MAX_MODELS_PER_RECORD * model.n, MIN_RECORD_LIMIT)


def _most_tensors(model: Layout) -> int:
    return max(MAX_MODELS_PER_RECORD * len(model.tensors), MIN_TENSOR_LIMIT)


def _layout_and_rest(frame: Frame) -> tuple[bytes, bytes]:
    payload = frame.payload
    if len(payload) < LENGTH.size or len(payload) < (begin := LENGTH.size + LENGTH.unpack_from(payload)[0]):
        raise TruncatedError(f"{len(payload)} bytes of record end within the layout")
    return payload[LENGTH.size : begin], payload[begin:]
