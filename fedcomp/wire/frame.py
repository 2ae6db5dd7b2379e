"""One frame: a head of 52 bytes that says what it is and for whom, and a payload."""

import enum
import struct
import zlib
from dataclasses import dataclass

from fedcomp.errors import CorruptError, TruncatedError, UnknownFormatError

MAGIC = b"FCMP"
FRAME_FORMAT = 1
HEAD = struct.Struct("<4sBBBBIIQQQQI")
FLAG_EXACT = 1  # flag: the exact tensors ride behind the body
FLAG_FIRST = 2  # flag of an update: the first increment of an estimate that starts from zero
SECONDS = struct.Struct("<ff")  # an update begins with them: what the node spent in encode and in decode


class Kind(enum.IntEnum):
    """What a frame does."""

    KEY = 1  # the whole model
    DELTA = 2  # from one version of the model to the next
    UPDATE = 3  # what a node learned, from the version that it trained from
    ACK = 4  # no payload: the node holds that version
    RESYNC = 5  # no payload: the node cannot follow and needs a key frame


KINDS = {kind.value: kind for kind in Kind}
"""Kinds by their numbers: asking the enumeration would take longer than all else in `parse`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Head and payload.

    `before` and `after` are fingerprints of the model; a frame from a node carries the number of the instruction that it
    answers in the place of `after`.
    """

    kind: Kind
    codec: int
    flags: int
    base_version: int
    version: int
    layout: int
    before: int
    after: int
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        """Return head and payload; the CRC32 at the end of the head covers both."""
        head = HEAD.pack(
            MAGIC,
            FRAME_FORMAT,
            self.kind,
            self.codec,
            self.flags,
            self.base_version,
            self.version,
            self.layout,
            self.before,
            self.after,
            len(self.payload),
            0,
        )[:-4]
        return b"".join((head, struct.pack("<I", zlib.crc32(self.payload, zlib.crc32(head))), self.payload))

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return HEAD.size + len(self.payload)


def parse_frame(data: bytes, at: int = 0) -> tuple[Frame, int]:
    """Return the frame that begins at `at`, and where the next one does.

    Raises `FedcompError` for bytes that are not a whole frame of a known format; they are copied only once checked.
    """
    if len(data) - at < HEAD.size:
        raise TruncatedError(f"{max(0, len(data) - at)} bytes; a frame's head needs {HEAD.size}")
    magic, form, kind, codec, flags, base, version, layout, before, after, length, crc = HEAD.unpack_from(data, at)
    if magic != MAGIC:
        raise UnknownFormatError(f"the bytes begin with {magic!r}; a frame begins with {MAGIC!r}")
    if form != FRAME_FORMAT:
        raise UnknownFormatError(f"frame format {form}; this version reads format {FRAME_FORMAT}")
    begin, end = at + HEAD.size, at + HEAD.size + length
    if end > len(data):
        raise TruncatedError(f"{len(data) - begin} bytes of payload; the head promises {length}")
    view = memoryview(data)
    if zlib.crc32(view[begin:end], zlib.crc32(view[at : begin - 4])) != crc:
        raise CorruptError("the frame's CRC32 does not fit its bytes")
    if kind not in KINDS:
        raise UnknownFormatError(f"frame kind {kind}; known are {', '.join(f'{k.value} ({k.name})' for k in Kind)}")
    if flags & ~(FLAG_EXACT | FLAG_FIRST if kind == Kind.UPDATE else FLAG_EXACT):
        raise UnknownFormatError(
            f"frame flags {flags:#x}; known are {FLAG_EXACT:#x} and, in an update, {FLAG_FIRST:#x}"
        )
    return Frame(KINDS[kind], codec, flags, base, version, layout, before, after, bytes(view[begin:end])), end


def parse_frames(data: bytes) -> tuple[Frame, ...]:
    """Return frames that follow each other, to the end of `data`; raises as `parse` does."""
    frames, at = [], 0
    while at < len(data):
        frame, at = parse_frame(data, at)
        frames.append(frame)
    return tuple(frames)


def parse_single_frame(data: bytes) -> Frame:
    """Return the frame that `data` is, and nothing behind it."""
    frame, end = parse_frame(data)
    if end != len(data):
        raise CorruptError(f"{len(data) - end} bytes follow the frame")
    return frame
