"""What the server says to one node in one message: how to reach the newest version, and how to answer."""

import struct
import zlib
from dataclasses import dataclass

from fedcomp.errors import CorruptError, TruncatedError, UnknownFormatError
from fedcomp.wire import frame as frames
from fedcomp.wire.frame import Frame

MESSAGE_MAGIC = b"FCIN"
MESSAGE_FORMAT = 1
HEAD = struct.Struct("<4sBBHQQIQIQI")
TRAINING_ID = 1
"""Flag: the lineage follows the text."""
NUMBER = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Ack:
    """Names one uplink: the number of the instruction that it answered, and its frame's CRC32."""

    number: int = 0
    crc: int = 0


def ack_of(number: int, data: bytes) -> Ack:
    """Return the receipt of the uplink frame `data` that answers instruction `number`."""
    return Ack(number, zlib.crc32(data))


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """`number` grows with every message of a server; `taken` is the last uplink that the server took from the node.

    `version` and `fingerprint` name the newest version, `frames` bring the node there; `uplink` is the text of the
    compressor to answer with, `seed` what its random numbers start from.  `lineage` names the training that the model belongs
    to, through all restarts of its server; it is said beside key frames.  0: not said.
    """

    number: int
    acked: Ack
    version: int
    fingerprint: int
    seed: int
    uplink: str
    frames: tuple[bytes, ...]
    training_id: int = 0

    def to_bytes(self) -> bytes:
        """Return head, text, lineage and frames; the CRC32 at the end of the head covers all but the frames."""
        text = self.uplink.encode()
        flags, behind = (TRAINING_ID, text + NUMBER.pack(self.training_id)) if self.training_id else (0, text)
        acked, newest = (self.acked.number, self.acked.crc), (self.version, self.fingerprint)
        head = HEAD.pack(MESSAGE_MAGIC, MESSAGE_FORMAT, flags, len(text), self.number, *acked, self.seed, *newest, 0)[
            :-4
        ]
        return b"".join((head, struct.pack("<I", zlib.crc32(behind, zlib.crc32(head))), behind, *self.frames))


def parse_server_message(data: bytes) -> tuple[ServerMessage, tuple[Frame, ...]]:
    """Return the instruction and its frames, parsed."""
    if len(data) < HEAD.size:
        raise TruncatedError(f"{len(data)} bytes; an instruction's head needs {HEAD.size}")
    magic, form, flags, length, number, *acked, seed, version, fingerprint, crc = HEAD.unpack_from(data)
    if magic != MESSAGE_MAGIC:
        raise UnknownFormatError(f"the bytes begin with {magic!r}; an instruction begins with {MESSAGE_MAGIC!r}")
    if form != MESSAGE_FORMAT:
        raise UnknownFormatError(f"instruction format {form}; this version reads format {MESSAGE_FORMAT}")
    if flags & ~TRAINING_ID:
        raise UnknownFormatError(f"instruction flags {flags:#x}; only {TRAINING_ID:#x} is known")
    at = HEAD.size + length + (NUMBER.size if flags & TRAINING_ID else 0)
    if at > len(data):
        raise TruncatedError(f"{len(data) - HEAD.size} bytes behind the head; it promises {at - HEAD.size}")
    text = data[HEAD.size : HEAD.size + length]
    if zlib.crc32(data[HEAD.size : at], zlib.crc32(data[: HEAD.size - 4])) != crc:
        raise CorruptError("the instruction's CRC32 does not fit its bytes")
    training_id = NUMBER.unpack_from(data, at - NUMBER.size)[0] if flags & TRAINING_ID else 0
    if flags and not training_id:
        raise CorruptError("the instruction names lineage 0, which is none")
    try:
        uplink = text.decode()
    except UnicodeDecodeError:
        raise CorruptError("the instruction's text is not UTF-8") from None
    parsed, pieces = [], []
    while at < len(data):
        one, end = frames.parse_frame(data, at)
        parsed.append(one)
        pieces.append(data[at:end])
        at = end
    asked = ServerMessage(number, Ack(*acked), version, fingerprint, seed, uplink, tuple(pieces), training_id)
    return asked, tuple(parsed)
