"""What the server says to one node in one message: how to reach the newest version, and how to answer."""

import struct
import zlib
from dataclasses import dataclass

from fedcomp.errors import CorruptError, TruncatedError, UnknownFormatError
from fedcomp.wire import frame as frames
from fedcomp.wire.frame import Frame

MAGIC = b"FCIN"
FORMAT = 1
HEAD = struct.Struct("<4sBBHQQIQIQI")


@dataclass(frozen=True, slots=True)
class Receipt:
    """Names one uplink: the number of the instruction that it answered, and its frame's CRC32."""

    number: int = 0
    crc: int = 0


def receipt(number: int, data: bytes) -> Receipt:
    """Return the receipt of the uplink frame `data` that answers instruction `number`."""
    return Receipt(number, zlib.crc32(data))


@dataclass(frozen=True, slots=True)
class Instruction:
    """`number` grows with every message of a server; `taken` is the last uplink that the server took from the node.

    `version` and `fingerprint` name the newest version, `frames` bring the node there; `uplink` is the text of the
    compressor to answer with, `seed` what its random numbers start from.
    """

    number: int
    taken: Receipt
    version: int
    fingerprint: int
    seed: int
    uplink: str
    frames: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Return head, text and frames; the CRC32 at the end of the head covers head and text."""
        text = self.uplink.encode()
        taken, newest = (self.taken.number, self.taken.crc), (self.version, self.fingerprint)
        head = HEAD.pack(MAGIC, FORMAT, 0, len(text), self.number, *taken, self.seed, *newest, 0)[:-4]
        return b"".join((head, struct.pack("<I", zlib.crc32(text, zlib.crc32(head))), text, *self.frames))


def parse(data: bytes) -> tuple[Instruction, tuple[Frame, ...]]:
    """Return the instruction and its frames, parsed."""
    if len(data) < HEAD.size:
        raise TruncatedError(f"{len(data)} bytes; an instruction's head needs {HEAD.size}")
    magic, form, flags, length, number, *taken, seed, version, fingerprint, crc = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise UnknownFormatError(f"the bytes begin with {magic!r}; an instruction begins with {MAGIC!r}")
    if form != FORMAT:
        raise UnknownFormatError(f"instruction format {form}; this version reads format {FORMAT}")
    if flags:
        raise UnknownFormatError(f"instruction flags {flags:#x}; none is known")
    at = HEAD.size + length
    if at > len(data):
        raise TruncatedError(f"{len(data) - HEAD.size} bytes of text; the head promises {length}")
    text = data[HEAD.size : at]
    if zlib.crc32(text, zlib.crc32(data[: HEAD.size - 4])) != crc:
        raise CorruptError("the instruction's CRC32 does not fit its bytes")
    try:
        uplink = text.decode()
    except UnicodeDecodeError:
        raise CorruptError("the instruction's text is not UTF-8") from None
    parsed, pieces = [], []
    while at < len(data):
        one, end = frames.parse(data, at)
        parsed.append(one)
        pieces.append(data[at:end])
        at = end
    return Instruction(number, Receipt(*taken), version, fingerprint, seed, uplink, tuple(pieces)), tuple(parsed)
