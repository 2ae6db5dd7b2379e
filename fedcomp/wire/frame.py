"""A frame: a head of 52 bytes, which says what the frame does to which model, and a payload."""

import enum
import struct
import zlib
from dataclasses import dataclass

from fedcomp.errors import CorruptError, TruncatedError, UnknownFormatError

MAGIC = b"FCMP"
FRAME_FORMAT = 1
HEAD = struct.Struct("<4sBBBBIIQQQQI")
FLAG_EXACT = 1
"""The exact tensors follow the body."""
FLAG_FIRST = 2
"""Only in an update: it is the first increment of an estimate that starts from zero."""
FLAG_GRID = 4
"""Only in a delta: its values are added on the grid."""
FLAG_DIRECT = 8
"""Only in activations: the body holds the activations themselves, and not their change."""
SECONDS = struct.Struct("<ff")
"""The first fields of an update: the seconds that the node took to encode and to decode."""


class Kind(enum.IntEnum):
    """The purpose of a frame."""

    KEY = 1  # the whole model
    DELTA = 2  # from one version of the model to the next
    UPDATE = 3  # the update of a node, relative to the version that it trained from
    ACK = 4  # no payload: the node holds that version
    RESYNC = 5  # no payload: the node cannot follow and needs a key frame
    START = 6  # the first version of the model, which the node makes itself
    JUMP = 7  # from one version of the model to a later one, on the grid
    REPLAY = 8  # the deltas off the grid from one version of the model to a later one
    ACTIVATION = 9  # split learning: the output of a node's lower part for a batch
    GRADIENT = 10  # split learning: the gradient of the loss with respect to such activations


OWN_FLAGS = {Kind.UPDATE: FLAG_FIRST, Kind.DELTA: FLAG_GRID, Kind.ACTIVATION: FLAG_DIRECT}
"""The flags that only frames of one kind may have."""
STEP_KINDS = (Kind.DELTA, Kind.JUMP, Kind.REPLAY)
"""The kinds that lead from one version of a model to a later one."""
KINDS = {kind.value: kind for kind in Kind}
"""Kinds by their numbers: calling the enumeration would take longer than the rest of `parse_frame`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Head and payload.

    `before` and `after` are fingerprints of the model.  In a frame from a node, `after` is the number of the server message
    that the frame answers.
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
        model = (self.base_version, self.version, self.layout, self.before, self.after)
        head = HEAD.pack(MAGIC, FRAME_FORMAT, self.kind, self.codec, self.flags, *model, len(self.payload), 0)[:-4]
        return b"".join((head, struct.pack("<I", zlib.crc32(self.payload, zlib.crc32(head))), self.payload))

    @property
    def size(self) -> int:
        """The bytes of the frame."""
        return HEAD.size + len(self.payload)


def kind_of(data: bytes) -> Kind:
    """Return the kind of a frame that this process has made; nothing is checked."""
    return KINDS[data[len(MAGIC) + 1]]


def parse_frame(data: bytes, offset: int = 0) -> tuple[Frame, int]:
    """Return the frame at `offset`, and the offset behind it.

    Raises `FedcompError` for bytes that are not a whole frame of a known format.  The payload is copied only after all checks.
    """
    if len(data) - offset < HEAD.size:
        raise TruncatedError(f"{max(0, len(data) - offset)} bytes; a frame's head needs {HEAD.size}")
    magic, form, kind, codec, flags, base, version, layout, before, after, length, crc = HEAD.unpack_from(data, offset)
    if magic != MAGIC:
        raise UnknownFormatError(f"the bytes begin with {magic!r}; a frame begins with {MAGIC!r}")
    if form != FRAME_FORMAT:
        raise UnknownFormatError(f"frame format {form}; this version reads format {FRAME_FORMAT}")
    begin, end = offset + HEAD.size, offset + HEAD.size + length
    if end > len(data):
        raise TruncatedError(f"{len(data) - begin} bytes of payload; the head promises {length}")
    view = memoryview(data)
    if (found := zlib.crc32(view[begin:end], zlib.crc32(view[offset : begin - 4]))) != crc:
        raise CorruptError(f"a frame with the CRC32 {found:#010x}; its head promises {crc:#010x}")
    if kind not in KINDS:
        raise UnknownFormatError(f"frame kind {kind}; known are {', '.join(f'{k.value} ({k.name})' for k in Kind)}")
    if flags & ~(FLAG_EXACT | OWN_FLAGS.get(kind, 0)):
        raise UnknownFormatError(
            f"frame flags {flags:#x}; known are {FLAG_EXACT:#x}, in an update {FLAG_FIRST:#x}, in a delta {FLAG_GRID:#x}, "
            f"in activations {FLAG_DIRECT:#x}"
        )
    return Frame(KINDS[kind], codec, flags, base, version, layout, before, after, bytes(view[begin:end])), end


def parse_frames(data: bytes, offset: int = 0) -> tuple[Frame, ...]:
    """Return the frames that follow each other from `offset` to the end of `data`.  Raises as `parse_frame` does."""
    frames: list[Frame] = []
    while offset < len(data):
        frame, offset = parse_frame(data, offset)
        frames.append(frame)
    return tuple(frames)


def parse_single_frame(data: bytes) -> Frame:
    """Return the only frame of `data`.  Raises as `parse_frame` does, and `CorruptError` for bytes that follow it."""
    frame, end = parse_frame(data)
    if end != len(data):
        raise CorruptError(f"{len(data) - end} bytes follow the frame")
    return frame
