"""Random changes to bytes, as by accident or by an attacker; and frames with their checksums made right again."""

import struct
import zlib
from collections.abc import Callable
from random import Random

from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.wire import frame, server_message

HUGE = (0, 1, 255, 256, 512, 2**16, 2**16 + 1, 2**20, 2**29, 2**31 - 1, 2**31, 2**32, 2**33, 2**62, 2**63 - 1)
"""Lengths and counts at which something overflows or takes gigabytes: 2^29 entries or 2^31 bytes are 2 GiB."""
FLOATS = ("0000807f", "0100807f", "0000c0ff", "ffff7f7f", "ffff7fff", "00000080", "01000000", "ffffffffffffef7f")
"""Infinity, NaNs, the largest and the least numbers, minus zero; the last one is the largest of 64 bits."""
HEAD_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 1), (7, 1), (8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 8), (48, 4))
"""The offset and the bytes of each field in the head of a frame."""
EARLY = 24
"""The first bytes of a body, which hold most of its counts."""
Change = Callable[[Random, bytes, bytes], bytes]


def flip(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with one bit flipped."""
    return _put(data, place := _place(rng, data), bytes([data[place] ^ 1 << rng.randrange(8)]))


def write(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with another value of one byte."""
    byte = rng.choice((0, 1, 127, 128, 255)) if rng.random() < 0.5 else rng.randrange(256)
    return _put(data, _place(rng, data), bytes([byte]))


def take_out(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` without a few bytes."""
    place = _place(rng, data)
    return data[:place] + data[place + rng.randrange(1, 9) :]


def put_in(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with a few bytes put in."""
    place = _place(rng, data)
    return data[:place] + rng.randbytes(rng.randrange(1, 9)) + data[place:]


def cut(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return the first part of `data`."""
    return data[: _place(rng, data)]


def grow(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` and further bytes."""
    size = rng.choice((1, 4, 8, rng.randrange(1, 300)))
    return data + (bytes(size) if rng.random() < 0.5 else rng.randbytes(size))


def splice(rng: Random, data: bytes, other: bytes) -> bytes:
    """Return the first part of `data` and the last one of `other`."""
    return data[: _place(rng, data)] + other[_place(rng, other) :]


def count(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with an extreme count, as a varint, in place of one of its first fields."""
    place = rng.randrange(min(len(data), EARLY))
    return data[:place] + write_varint(rng.choice(HUGE)) + data[place + rng.randrange(1, 6) :]


def word(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with an extreme number of 1, 2, 4 or 8 bytes."""
    size = rng.choice((1, 2, 4, 8))
    number = rng.choice((*HUGE, 2**64 - 1)) % 256**size
    return _put(data, _place(rng, data), number.to_bytes(size, "little"))


def real(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with NaN, infinity or an extreme number of four or eight bytes."""
    return _put(data, _place(rng, data), bytes.fromhex(rng.choice(FLOATS)))


def repeat(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with a piece of it several times."""
    place = _place(rng, data)
    end = place + rng.randrange(1, 33)
    return data[:end] + data[place:end] * rng.randrange(1, 9) + data[end:]


def blank(rng: Random, data: bytes, _: bytes) -> bytes:
    """Return `data` with a stretch of zeros or ones."""
    place = _place(rng, data)
    size = min(len(data) - place, 1 << rng.randrange(12))
    return _put(data, place, bytes([rng.choice((0, 255))]) * size)


CHANGES: tuple[Change, ...] = (
    flip,
    write,
    write,
    take_out,
    put_in,
    cut,
    grow,
    splice,
    count,
    word,
    real,
    repeat,
    blank,
)


def disturb(rng: Random, data: bytes, other: bytes = b"") -> bytes:
    """Return `data` after one to three changes; a change may splice it with `other`."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(CHANGES)(rng, data or b"\0", other or data or b"\0")
    return data


def disturb_head(rng: Random, data: bytes) -> bytes:
    """Return the frame `data` with other numbers in one to three fields of its head: extreme ones, or one bit different."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        begin, size = rng.choice(HEAD_FIELDS)
        number = int.from_bytes(data[begin : begin + size], "little")
        other = rng.choice((*HUGE, number + 1, number - 1, number ^ 1 << rng.randrange(8 * size), rng.getrandbits(64)))
        data = _put(data, begin, (other % 256**size).to_bytes(size, "little"))
    return data


def seal_frame(data: bytes, *, length: bool = True) -> bytes:
    """Return the frame `data` with the magic, the format, the CRC32 and, optionally, the length that belong to its bytes."""
    head, payload = data[: frame.HEAD.size].ljust(frame.HEAD.size, b"\0"), data[frame.HEAD.size :]
    size = struct.pack("<Q", len(payload)) if length else head[40:48]
    covered = frame.MAGIC + bytes([frame.FRAME_FORMAT]) + head[5:40] + size
    promised = payload[: int.from_bytes(size, "little")]
    return covered + struct.pack("<I", zlib.crc32(promised, zlib.crc32(covered))) + payload


def seal_server_message(data: bytes) -> bytes:
    """Return the server message `data` with the magic, the format and the CRC32 that belong to its bytes."""
    head, behind = (
        data[: server_message.HEAD.size].ljust(server_message.HEAD.size, b"\0"),
        data[server_message.HEAD.size :],
    )
    covered = server_message.MESSAGE_MAGIC + bytes([server_message.MESSAGE_FORMAT]) + head[5:-4]
    flags, length = covered[5], int.from_bytes(covered[6:8], "little")
    promised = behind[: length + server_message.OPTIONAL.size * (flags & 3).bit_count()]
    return covered + struct.pack("<I", zlib.crc32(promised, zlib.crc32(covered))) + behind


def _place(rng: Random, data: bytes) -> int:
    """Return a place in `data`, most often an early one, where the counts are."""
    near = rng.random()
    return rng.randrange(min(len(data), EARLY) if near < 0.4 else min(len(data), 256) if near < 0.6 else len(data))


def _put(data: bytes, place: int, field: bytes) -> bytes:
    return data[:place] + field + data[place + len(field) :]
