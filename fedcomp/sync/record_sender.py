"""A further record in replies, such as SCAFFOLD's control variates: compressed with a memory of its own, exactly once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError, LayoutError, NonFiniteError, StaleError, TruncatedError
from fedcomp.memory import State
from fedcomp.methods import parse
from fedcomp.sync.replica import LENGTH, Replica, split_payload
from fedcomp.sync.subscriber import known_compressor
from fedcomp.sync.updates import MAX_WEIGHT_MAGNITUDE, float_values
from fedcomp.wire import (
    FLAG_EXACT,
    Frame,
    Kind,
    Layout,
    codec_id,
    decode_body,
    layout_of,
    parse_layout,
    parse_single_frame,
)

MAX_MODELS_PER_RECORD = 4
"""A record may have as many times the entries of the model, and as many times its tensors."""
MIN_RECORD_LIMIT = 1 << 16
"""Entries that a record may have, however small the model is."""
MIN_TENSOR_LIMIT = 256
"""Tensors that a record may have, however few the model has."""


@dataclass(slots=True)
class RecordSender:
    """The memory of one record's compressor, and its last frame until the server has accepted the reply that holds it.

    `pending` is the frame in the answer to message `pending_number`, empty if there is none; `uplink` is the compressor that
    made it, and `layout` the record's, None before the first one.
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
            lost = decode_body(frame.codec, body, self.layout)
            self.memory |= parse(self.uplink).memory.rollback(lost, self.memory)
        self.pending, self.pending_number = b"", 0

    def encode(self, arrays: Mapping[str, NDArray[Any]], uplink: str, model: Replica, number: int, seed: int) -> bytes:
        """Return the frame of the record `arrays` in the answer to message `number`, and keep it as `pending`.

        Floating tensors go as one vector through the compressor `uplink`, the others go as they are.  A record of another
        layout than the last one empties the memory.

        Raises:
            UnknownFormatError: The compressor is unknown here.
            ValueError: The record is too large, or holds a number that cannot be sent; the memory is unchanged.

        """
        layout = layout_of(arrays)
        if layout.n > (limit := _most_entries(model.layout)):
            raise ValueError(f"{layout.n} entries; next to this model, at most {limit} can be compressed")
        vector, exact = layout.flatten(arrays)
        compressor = known_compressor(uplink)
        held = self.memory if layout == self.layout else {}
        state = compressor.select(held, layout.n)
        try:
            body, state = compressor.encode(vector, state, seed, server_round=model.version, shapes=layout.shapes)
        except NonFiniteError as error:
            raise layout.explain(error) from None
        self.memory = held | state
        self.layout, self.uplink, self.pending_number = layout, uplink, number
        text = b"" if layout == model.layout else layout.text
        self.pending = Frame(
            Kind.UPDATE,
            codec_id(compressor.entropy),
            FLAG_EXACT if exact else 0,
            model.version,
            model.version,
            layout.digest,
            model.fingerprint,
            number,
            b"".join((LENGTH.pack(len(text)), text, body, exact)),
        ).to_bytes()
        return self.pending


def decode_record(data: bytes, number: int, model: Layout) -> dict[str, NDArray[Any]]:
    """Return the tensors of the record that `RecordSender.encode` wrote in the answer to message `number`.

    Raises `FedcompError` for damaged bytes, for the answer to another message, and before any memory is taken, for a record
    that is too large next to the `model`.
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
    if len(layout.tensors) > (most := max(MAX_MODELS_PER_RECORD * len(model.tensors), MIN_TENSOR_LIMIT)):
        raise CorruptError(f"{len(layout.tensors)} tensors; at most {most} are possible")
    if bool(frame.flags & FLAG_EXACT) != bool(layout.exact_size):
        raise CorruptError(f"the frame's flags do not fit its {layout.exact_size} bytes of exact tensors")
    body, exact = split_payload(frame, rest, layout, b"")
    layout.check_exact(exact)
    vector = decode_body(frame.codec, body, layout).dense()
    arrays = layout.unflatten(vector, exact)
    if not all(
        float(np.abs(a).max(initial=0)) <= MAX_WEIGHT_MAGNITUDE for a in (vector, *float_values(arrays).values())
    ):
        raise CorruptError(f"it holds values beyond {MAX_WEIGHT_MAGNITUDE:g} or beyond their dtype")
    return arrays


def _most_entries(model: Layout) -> int:
    return max(MAX_MODELS_PER_RECORD * model.n, MIN_RECORD_LIMIT)


def _layout_and_rest(frame: Frame) -> tuple[bytes, bytes]:
    payload = frame.payload
    if len(payload) < LENGTH.size or len(payload) < (begin := LENGTH.size + LENGTH.unpack_from(payload)[0]):
        raise TruncatedError(f"{len(payload)} bytes of record end within the layout")
    return payload[LENGTH.size : begin], payload[begin:]
