"""One message from the server to one node: how to reach the newest version, and how to answer."""

import struct
import zlib
from dataclasses import dataclass
from itertools import accumulate, pairwise

from fedcomp.errors import CorruptError, TruncatedError, UnknownFormatError
from fedcomp.wire.frame import Frame, parse_frames

MESSAGE_MAGIC = b"FCIN"
MESSAGE_FORMAT = 1
HEAD = struct.Struct("<4sBBHQQIQIQI")
CRC = struct.Struct("<I")
TRAINING_ID = 1  # flag: the training id follows the text
EPOCH = 2  # flag: the epoch follows the text and the training id
RETURNED = 4  # flag: the returned share follows the other optional fields
FLAGS = (TRAINING_ID, EPOCH, RETURNED)
SHARES = 1 << 53
"""A share travels as a whole number of parts, of which this many make 1: float64 holds each such number exactly."""
OPTIONAL = struct.Struct("<Q")
COUNTER_BITS = 32
"""The lower bits of a message's number are a counter; the upper bits name its server."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Names one update: the number of the message that it answered, and the CRC32 of its frame."""

    number: int = 0
    crc: int = 0


def ack_of(number: int, data: bytes) -> Ack:
    """Return the acknowledgement of the update frame `data` that answers message `number`."""
    return Ack(number, zlib.crc32(data))


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """What the server sends to a node.

    `number` grows with every message of a server; its upper bits name the server (`COUNTER_BITS`).  `acked` is the last update
    that the server accepted from the node.  `version` and `fingerprint` name the newest version, and `frames` bring the node
    there.  `uplink` is the text of the compressor to answer with, and `seed` the seed of its random numbers.

    Three fields are optional, and 0 if absent.  `training_id` names the training that the model belongs to, through all
    restarts of its server.  `epoch` numbers the server's sum of increments (EF21): a node whose estimate belongs to another
    epoch starts its estimate from zero.  `returned` is the share of the update `acked` that did not count, at least 0 and
    below 1.  It goes back to the node's memory.
    """

    number: int
    acked: Ack
    version: int
    fingerprint: int
    seed: int
    uplink: str
    frames: tuple[bytes, ...]
    training_id: int = 0
    epoch: int = 0
    returned: float = 0.0

    def to_bytes(self) -> bytes:
        """Return head, text, optional fields and frames; the CRC32 at the end of the head covers all but the frames."""
        text, flags = self.uplink.encode(), 0
        covered = text
        for flag, value in zip(FLAGS, (self.training_id, self.epoch, round(self.returned * SHARES)), strict=True):
            if value:
                flags |= flag
                covered += OPTIONAL.pack(value)
        acked, newest = (self.acked.number, self.acked.crc), (self.version, self.fingerprint)
        head = HEAD.pack(MESSAGE_MAGIC, MESSAGE_FORMAT, flags, len(text), self.number, *acked, self.seed, *newest, 0)
        head = head[: -CRC.size]
        return b"".join((head, CRC.pack(zlib.crc32(covered, zlib.crc32(head))), covered, *self.frames))


def parse_server_message(data: bytes) -> tuple[ServerMessage, tuple[Frame, ...]]:
    """Return the message in `data` and its frames, parsed.

    Raises:
        TruncatedError: `data` ends within the head, the text, an optional field or a frame.
        UnknownFormatError: The magic number, the format or a flag is unknown.
        CorruptError: A CRC32 does not match, an optional field is out of range, or the text is not UTF-8.

    """
    if len(data) < HEAD.size:
        raise TruncatedError(f"{len(data)} bytes; the head of a message needs {HEAD.size}")
    magic, form, flags, length, number, *acked, seed, version, fingerprint, crc = HEAD.unpack_from(data)
    if magic != MESSAGE_MAGIC:
        raise UnknownFormatError(f"the bytes begin with {magic!r}; a message begins with {MESSAGE_MAGIC!r}")
    if form != MESSAGE_FORMAT:
        raise UnknownFormatError(f"message format {form}; this version reads format {MESSAGE_FORMAT}")
    if flags & ~sum(FLAGS):
        raise UnknownFormatError(f"message flags {flags:#x}; known are {', '.join(map(hex, FLAGS))}")
    present = [flag for flag in FLAGS if flags & flag]
    text_end = HEAD.size + length
    offset = text_end + OPTIONAL.size * len(present)
    if offset > len(data):
        raise TruncatedError(f"{len(data) - HEAD.size} bytes after the head; it promises {offset - HEAD.size}")
    if zlib.crc32(data[HEAD.size : offset], zlib.crc32(data[: HEAD.size - CRC.size])) != crc:
        raise CorruptError("the CRC32 of the message does not match its bytes")
    optional = {
        flag: OPTIONAL.unpack_from(data, text_end + place * OPTIONAL.size)[0] for place, flag in enumerate(present)
    }
    if not all(optional.values()):
        raise CorruptError("the message has an optional field of 0; other values are needed")
    if (parts := optional.get(RETURNED, 0)) >= SHARES:
        raise CorruptError(f"a returned share of {parts} parts; below {SHARES} are needed")
    try:
        uplink = data[HEAD.size : text_end].decode()
    except UnicodeDecodeError:
        raise CorruptError("the text of the message is not UTF-8") from None
    parsed = parse_frames(data, offset)
    frames = tuple(data[start:end] for start, end in pairwise(accumulate((f.size for f in parsed), initial=offset)))
    training_id, epoch = optional.get(TRAINING_ID, 0), optional.get(EPOCH, 0)
    newest = (version, fingerprint)
    message = ServerMessage(
        number, Ack(*acked), *newest, seed, uplink, frames, training_id, epoch, returned=parts / SHARES
    )
    return message, parsed
