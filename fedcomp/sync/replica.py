"""A model at a version, and the one way to the next: the same float32 additions, in the same order, everywhere."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.errors import CorruptError, LayoutError, TruncatedError, VersionError
from fedcomp.sync.fingerprint import WORD, change, exact_part, fingerprint
from fedcomp.wire import FLAG_EXACT, NO_BODY, Frame, Kind, Layout, codec_by_id, parse_layout

LENGTH = struct.Struct("<I")
STRETCH = 1 << 14
"""Entries of a step worked out at a time."""


@dataclass(frozen=True, slots=True)
class Replica:
    """`vector` float32 (n,), `exact` bytes, and the `fingerprint` of both.

    A version is a number and a fingerprint: a server that came back from an older checkpoint gives out numbers again, but
    never the same pair for another model.
    """

    layout: Layout
    version: int
    vector: Vector
    exact: bytes
    fingerprint: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tensors in the layout's dtypes, local ones apart."""
        return self.layout.unflatten(self.vector, self.exact)

    def key_frame(self) -> Frame:
        """Return the frame that brings anybody here: the layout, the vector and the exact tensors."""
        layout = self.layout
        payload = b"".join(
            (LENGTH.pack(len(layout.text)), layout.text, self.vector.astype("<f4").tobytes(), self.exact)
        )
        here = (self.version, self.version, layout.digest, self.fingerprint, self.fingerprint)
        return Frame(Kind.KEY, NO_BODY, FLAG_EXACT, *here, payload)

    def delta_frame(self, codec: int, body: bytes, exact: bytes) -> Frame:
        """Return the frame that brings who is here to the next version: `body` added, the exact tensors replaced."""
        flags = 0 if exact == self.exact else FLAG_EXACT
        frame = Frame(
            Kind.DELTA,
            codec,
            flags,
            self.version,
            self.version + 1,
            self.layout.digest,
            self.fingerprint,
            0,
            body + exact if flags else body,
        )
        return replace(frame, after=DeltaStep.of(self, frame).fingerprint)

    def advance(self, frame: Frame, reader: "FrameDecoder | None" = None) -> "Replica":
        """Return the replica after a delta frame; this one is spent, its memory lives on.

        `reader` works the step out, where that is not done here.
        A frame that was applied before changes nothing.  Raises `VersionError` for one that starts elsewhere, `LayoutError`
        for another model's, `CorruptError` for one that does not end where it says; the replica is then as it was.
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
        step = (reader or DefaultDecoder()).step(self, frame)
        if frame.version != self.version + 1 or step.fingerprint != frame.after:
            raise CorruptError(
                f"a delta that does not end in the version {frame.version} ({frame.after:016x}) that it names"
            )
        self.vector[step.at] = step.values
        return Replica(self.layout, frame.version, self.vector, step.exact, step.fingerprint)


@dataclass(frozen=True, slots=True)
class DeltaStep:
    """What a delta frame does to a replica, worked out before anything is touched."""

    at: Any
    values: Vector
    exact: bytes
    fingerprint: int

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, about."""
        return 2 * self.values.nbytes + len(self.exact)

    @classmethod
    def of(cls, replica: Replica, frame: Frame) -> "DeltaStep":
        """Return the step of `frame` from `replica`; the same for every replica that is equal to it."""
        layout = replica.layout
        body, exact = split_payload(frame, frame.payload, layout, replica.exact)
        if frame.flags & FLAG_EXACT:
            layout.check_exact(exact)
        sent = codec_by_id(frame.codec).decode(body, n=layout.n)
        with np.errstate(over="ignore"):
            sparse = sent.sparse()
            values = sent.dense() if sparse is None else sparse.values
            del sent, body  # they would make it more than four times the model
            new, moved = np.empty_like(values), 0
            for start in range(0, new.size, STRETCH):
                part = slice(start, start + STRETCH)
                old = replica.vector[part if sparse is None else sparse.indices[part]]
                np.add(old, values[part], out=new[part])
                if not np.isfinite(new[part]).all():
                    raise CorruptError("a delta takes the model out of float32")
                if sparse is not None:
                    moved += change(sparse.indices[part], old, new[part])
        if sparse is None:
            return cls(slice(None), new, exact, fingerprint(new, exact))
        total = replica.fingerprint + moved - exact_part(replica.exact) + exact_part(exact)
        return cls(sparse.indices, new, exact, total & WORD)


def start_replica(layout: Layout, arrays: Mapping[str, NDArray[Any]], version: int = 0) -> Replica:
    """Return the replica that holds `arrays`."""
    vector, exact = layout.flatten(arrays)
    return Replica(layout, version, vector, exact, fingerprint(vector, exact))


def from_key_frame(frame: Frame) -> Replica:
    """Return the replica that a key frame holds."""
    if frame.kind is not Kind.KEY:
        raise CorruptError(f"a frame of kind {frame.kind.name}; a key frame is needed")
    payload = frame.payload
    if len(payload) < LENGTH.size or len(payload) < (begin := LENGTH.size + LENGTH.unpack_from(payload)[0]):
        raise TruncatedError(f"{len(payload)} bytes of key frame end within the layout")
    layout = parse_layout(payload[LENGTH.size : begin])
    if layout.digest != frame.layout:
        raise CorruptError("the layout in the key frame does not fit the digest in its head")
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


class FrameDecoder(Protocol):
    """Works out what frames say."""

    def step(self, replica: Replica, frame: Frame, /) -> DeltaStep:
        """Return what a delta frame does to `replica`."""
        ...

    def begin(self, frame: Frame, /) -> Replica:
        """Return the replica that a key frame holds."""
        ...


class DefaultDecoder:
    """The reader of who reads each frame anew."""

    step = staticmethod(DeltaStep.of)
    begin = staticmethod(from_key_frame)


def apply_frame(replica: Replica | None, frame: Frame, reader: FrameDecoder | None = None) -> Replica:
    """Return the replica after `frame`; a key frame starts anew, a delta that lies behind `replica` changes nothing.

    `reader` works out what the frame says, where that is not done here.  The replica passed in is spent.
    Raises `VersionError` for a delta that does not reach on from it.
    """
    if frame.kind is Kind.KEY:
        same = replica is not None and replica.layout.digest == frame.layout
        if replica is not None and same and (replica.version, replica.fingerprint) == (frame.version, frame.after):
            return replica
        return (reader or DefaultDecoder()).begin(frame)
    if replica is None:
        raise VersionError(f"a delta from version {frame.base_version}; no model is held")
    behind = frame.kind is Kind.DELTA and frame.layout == replica.layout.digest and frame.version < replica.version
    return replica if behind else replica.advance(frame, reader)


def split_payload(frame: Frame, payload: bytes, layout: Layout, exact: bytes) -> tuple[bytes, bytes]:
    """Return body and exact tensors of a delta's or an update's payload; `exact` where the frame brings none."""
    if not frame.flags & FLAG_EXACT:
        return payload, exact
    cut = len(payload) - layout.exact_size
    if cut < 0:
        raise TruncatedError(f"{len(payload)} bytes of payload; the exact tensors alone need {layout.exact_size}")
    return payload[:cut], payload[cut:]
