"""The effect of a frame of any kind on a replica: the next version, or another model."""

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from fedcomp.errors import CorruptError, TruncatedError, VersionError
from fedcomp.sync.fingerprint import fingerprint
from fedcomp.sync.replica import LENGTH, FrameDecoder, Replica, start_replica
from fedcomp.wire import STEP_KINDS, Frame, Kind, Layout, parse_layout, read_vector

MakeStart = Callable[[], Mapping[str, NDArray[Any]]]
"""Returns the tensors of the first version of a model."""


def apply_frame(
    replica: Replica | None, frame: Frame, decoder: FrameDecoder | None = None, make_start: MakeStart | None = None
) -> Replica:
    """Return the replica after `frame`.  The replica passed in is spent.

    A key or start frame replaces the replica, unless the replica already is at that version.  Any other frame to an older
    version changes nothing.  `decoder` computes the effect of the frame, by default without a shared cache; `make_start`
    returns the arrays that a start frame names.  Raises as `Replica.advance`, `from_key_frame` and `from_start_frame` do, and
    `VersionError` for a step if `replica` is None.
    """
    if frame.kind in (Kind.KEY, Kind.START):
        same = replica is not None and replica.layout.digest == frame.layout
        if replica is not None and same and (replica.version, replica.fingerprint) == (frame.version, frame.after):
            return replica
        if frame.kind is Kind.START:
            return from_start_frame(frame, make_start)
        return decoder.begin(frame) if decoder else from_key_frame(frame)
    if replica is None:
        raise VersionError(f"a frame from version {frame.base_version}; no model is held")
    is_step, same = frame.kind in STEP_KINDS, frame.layout == replica.layout.digest
    return replica if is_step and same and frame.version < replica.version else replica.advance(frame, decoder)


def layout_in(frame: Frame) -> tuple[Layout, int]:
    """Return the layout at the beginning of the payload of a key or start frame, and the offset behind it.

    Raises `FedcompError` for a payload that does not begin with the layout whose digest is in the frame.
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
    if (end := len(payload) - layout.exact_size) < begin:
        raise TruncatedError(f"{len(payload) - begin} bytes of model; the exact tensors alone need {layout.exact_size}")
    vector, exact = read_vector(frame.codec, payload[begin:end], layout), payload[end:]
    layout.check_exact(exact)
    mark = fingerprint(vector, exact)
    if mark != frame.after or frame.before != frame.after or frame.base_version != frame.version:
        raise CorruptError("the key frame does not hold the version that its head names")
    return Replica(layout, frame.version, vector, exact, mark)


def from_start_frame(frame: Frame, make_start: MakeStart | None) -> Replica:
    """Return the replica that a start frame names, made of the arrays that `make_start` returns.

    Raises `VersionError` if the arrays are of another model, or differ from the named model in any bit; `FedcompError` for a
    frame that is not a valid start frame.
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
