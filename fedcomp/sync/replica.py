"""A model at a version, and the step to the next one: the same float32 additions, in the same order, on every machine."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.errors import CorruptError, LayoutError, TruncatedError, VersionError
from fedcomp.quantized import Indices
from fedcomp.sync.fingerprint import MODULUS_MASK, change, exact_part, fingerprint
from fedcomp.wire import FLAG_EXACT, NO_BODY, Frame, Kind, Layout, decode_body, parse_layout

MakeStart = Callable[[], Mapping[str, NDArray[Any]]]
"""Returns the tensors of the first version of a model."""
LENGTH = struct.Struct("<I")
STEP_BLOCK_ENTRIES = 1 << 14
"""Entries of a step that are computed at a time, so that the temporaries stay in the cache."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A model: `vector`, float32 (n,), the bytes of the `exact` tensors, and the `fingerprint` of both.

    A version is its number and its fingerprint: a server that resumes from an older checkpoint reuses numbers, but no pair.
    """

    layout: Layout
    version: int
    vector: Vector
    exact: bytes
    fingerprint: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tensors in the layout's dtypes, without the local ones."""
        return self.layout.unflatten(self.vector, self.exact)

    def key_frame(self) -> Frame:
        """Return the frame that holds the whole model: the layout, the vector and the exact tensors."""
        layout = self.layout
        payload = b"".join(
            (LENGTH.pack(len(layout.text)), layout.text, self.vector.astype("<f4").tobytes(), self.exact)
        )
        here = (self.version, self.version, layout.digest, self.fingerprint, self.fingerprint)
        return Frame(Kind.KEY, NO_BODY, FLAG_EXACT, *here, payload)

    def start_frame(self) -> Frame:
        """Return the frame that names this model, for nodes that can make it themselves: the layout and the fingerprint."""
        here = (self.version, self.version, self.layout.digest, self.fingerprint, self.fingerprint)
        return Frame(Kind.START, NO_BODY, 0, *here, LENGTH.pack(len(self.layout.text)) + self.layout.text)

    def delta(self, codec: int, body: bytes, exact: bytes) -> "tuple[Frame, DeltaStep]":
        """Return the frame that adds the vector in `body` and replaces the exact tensors, and its step to the next version.

        Raises `CorruptError` if the sum is not finite.
        """
        flags = 0 if exact == self.exact else FLAG_EXACT
        place = (self.version, self.version + 1, self.layout.digest, self.fingerprint, 0)
        frame = Frame(Kind.DELTA, codec, flags, *place, body + exact if flags else body)
        step = DeltaStep.of(self, frame)
        return replace(frame, after=step.fingerprint), step

    def advance(self, frame: Frame, decoder: "FrameDecoder | None" = None) -> "Replica":
        """Return the replica after a delta frame.  This replica is spent: its vector lives on in the new one.

        A frame that was applied before changes nothing.  `decoder` computes the step, by default without a shared cache.

        Raises:
            VersionError: The frame starts from another version.
            LayoutError: The frame is for another model.
            CorruptError: The frame does not end in the version that it names.  The replica is unchanged in all cases.

        """
        if frame.kind is not Kind.DELTA:
            raise CorruptError(f"a frame of kind {frame.kind.name}; a delta is needed")
        if frame.layout != self.layout.digest:
            raise LayoutError("a delta for another model")
        if (frame.version, frame.after) == (self.version, self.fingerprint):
            return self
        if (frame.base_version, frame.before) != (self.version, self.fingerprint):
            raise VersionError(
                f"a delta from version {frame.base_version} ({frame.before:016x}); "
                f"version {self.version} ({self.fingerprint:016x}) is held"
            )
        step = decoder.step(self, frame) if decoder else DeltaStep.of(self, frame)
        if frame.version != self.version + 1 or step.fingerprint != frame.after:
            text = f"a delta that does not end in the version {frame.version} ({frame.after:016x}) that it names"
            raise CorruptError(text)
        return self.after(step)

    def after(self, step: "DeltaStep") -> "Replica":
        """Return the replica after `step`, which leads to the next version.  This replica is spent."""
        self.vector[step.selection] = step.values
        return Replica(self.layout, self.version + 1, self.vector, step.exact, step.fingerprint)


@dataclass(frozen=True, slots=True)
class DeltaStep:
    """The effect of a delta frame on a replica, computed before anything changes.

    ``vector[selection] = values`` is the step; `exact` and `fingerprint` are those after it.
    """

    selection: Indices | slice
    values: Vector
    exact: bytes
    fingerprint: int

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""
        return 2 * self.values.nbytes + len(self.exact)

    @classmethod
    def of(cls, replica: Replica, frame: Frame) -> "DeltaStep":
        """Return the step of `frame` from `replica`; equal replicas give equal steps.

        Raises `FedcompError` for a damaged body, and `CorruptError` if the new model is not finite.
        """
        layout = replica.layout
        body, exact = split_payload(frame, frame.payload, layout, replica.exact)
        if frame.flags & FLAG_EXACT:
            layout.check_exact(exact)
        quantized = decode_body(frame.codec, body, layout)
        with np.errstate(over="ignore"):
            sparse = quantized.sparse()
            values = quantized.dense() if sparse is None else sparse.values
            del quantized, body  # with them, memory would exceed four times the model
            new, fingerprint_change = np.empty_like(values), 0
            for start in range(0, new.size, STEP_BLOCK_ENTRIES):
                part = slice(start, start + STEP_BLOCK_ENTRIES)
                old = replica.vector[part if sparse is None else sparse.indices[part]]
                np.add(old, values[part], out=new[part])
                if not np.isfinite(new[part]).all():
                    raise CorruptError("a delta leads to weights beyond float32; finite ones are needed")
                if sparse is not None:
                    fingerprint_change += change(sparse.indices[part], old, new[part])
        if sparse is None:
            return cls(slice(None), new, exact, fingerprint(new, exact))
        total = replica.fingerprint + fingerprint_change - exact_part(replica.exact) + exact_part(exact)
        return cls(sparse.indices, new, exact, total & MODULUS_MASK)


def start_replica(layout: Layout, arrays: Mapping[str, NDArray[Any]], version: int = 0) -> Replica:
    """Return the replica of `layout` that holds `arrays`; raises as `Layout.flatten` does."""
    vector, exact = layout.flatten(arrays)
    return Replica(layout, version, vector, exact, fingerprint(vector, exact))


def layout_in(frame: Frame) -> tuple[Layout, int]:
    """Return the layout at the beginning of the payload of a key or start frame, and the offset behind it.

    Raises `FedcompError` for a payload that does not begin with the layout of the frame's digest.
    """
    payload = frame.payload
    if len(payload) < LENGTH.size or len(payload) < (end := LENGTH.size + LENGTH.unpack_from(payload)[0]):
        raise TruncatedError(f"{len(payload)} bytes of payload end within the layout")
    layout = parse_layout(payload[LENGTH.size : end])
    if layout.digest != frame.layout:
        raise CorruptError("the layout in the frame does not fit the digest in its head")
    return layout, end


def from_key_frame(frame: Frame) -> Replica:
    """Return the replica that a key frame holds; raise `FedcompError` for a frame that is not a valid key frame."""
    if frame.kind is not Kind.KEY:
        raise CorruptError(f"a frame of kind {frame.kind.name}; a key frame is needed")
    payload = frame.payload
    layout, begin = layout_in(frame)
    if len(payload) != begin + 4 * layout.n + layout.exact_size:
        raise CorruptError(
            f"{len(payload) - begin} bytes of model; the layout needs {4 * layout.n + layout.exact_size}"
        )
    vector = np.frombuffer(payload, "<f4", layout.n, begin).astype(np.float32)
    exact = payload[begin + 4 * layout.n :]
    if not np.isfinite(vector).all():
        raise CorruptError("the key frame holds NaN or infinity")
    layout.check_exact(exact)
    mark = fingerprint(vector, exact)
    if mark != frame.after or frame.before != frame.after or frame.base_version != frame.version:
        raise CorruptError("the key frame does not hold the version that its head names")
    return Replica(layout, frame.version, vector, exact, mark)


def from_start_frame(frame: Frame, make_start: MakeStart | None) -> Replica:
    """Return the replica that a start frame names, of the arrays that `make_start` returns.

    Raises `VersionError` if these are of another model, or differ from the named one in any bit; `FedcompError` for a frame
    that is not a valid start frame.
    """
    layout, end = layout_in(frame)
    if len(frame.payload) != end or frame.before != frame.after or frame.base_version != frame.version:
        raise CorruptError("the start frame does not name one version")
    if make_start is None:
        raise VersionError("the server asks for a model that is made here; CompressionMod(start=...) says how")
    try:
        replica = start_replica(layout, make_start(), frame.version)
    except Exception as error:
        raise VersionError(f"the start cannot be made here: {type(error).__name__}: {error}") from error
    if replica.fingerprint != frame.after:
        raise VersionError(
            f"the start made here ({replica.fingerprint:016x}) is not that of the server ({frame.after:016x})"
        )
    return replica


class FrameDecoder(Protocol):
    """Computes the effect of frames, such as a cache that several replicas share."""

    def step(self, replica: Replica, frame: Frame, /) -> DeltaStep:
        """Return the effect of a delta frame on `replica`."""
        ...

    def begin(self, frame: Frame, /) -> Replica:
        """Return the replica that a key frame holds."""
        ...


def apply_frame(
    replica: Replica | None,
    frame: Frame,
    decoder: FrameDecoder | None = None,
    make_start: MakeStart | None = None,
) -> Replica:
    """Return the replica after `frame`.  The replica passed in is spent.

    A key or start frame replaces the replica, unless it holds the same version; a delta to an older version changes nothing.
    `decoder` computes the effect of the frame, by default without a shared cache; `make_start` returns the arrays that a start
    frame names.  Raises as `Replica.advance` and `from_start_frame` do, and `VersionError` for a delta if `replica` is None.
    """
    if frame.kind in (Kind.KEY, Kind.START):
        same = replica is not None and replica.layout.digest == frame.layout
        if replica is not None and same and (replica.version, replica.fingerprint) == (frame.version, frame.after):
            return replica
        if frame.kind is Kind.START:
            return from_start_frame(frame, make_start)
        return decoder.begin(frame) if decoder else from_key_frame(frame)
    if replica is None:
        raise VersionError(f"a delta from version {frame.base_version}; no model is held")
    is_older = frame.kind is Kind.DELTA and frame.layout == replica.layout.digest and frame.version < replica.version
    return replica if is_older else replica.advance(frame, decoder)


def split_payload(frame: Frame, payload: bytes, layout: Layout, exact: bytes) -> tuple[bytes, bytes]:
    """Return the body and the exact tensors in the payload of a delta or an update; `exact` if the frame holds none."""
    if not frame.flags & FLAG_EXACT:
        return payload, exact
    cut = len(payload) - layout.exact_size
    if cut < 0:
        raise TruncatedError(f"{len(payload)} bytes of payload; the exact tensors alone need {layout.exact_size}")
    return payload[:cut], payload[cut:]
