"""A frame is 52 bytes of head and a payload: by hand, back and forth, and damaged."""

import struct
import zlib

import numpy as np
import pytest

from fedcomp.errors import CorruptError, FedcompError, TruncatedError, UnknownFormatError
from fedcomp.wire import FLAG_EXACT, Frame, Kind, parse_frame, parse_frames, parse_single_frame
from fedcomp.wire.frame import HEAD

FRAME = Frame(Kind.DELTA, 2, FLAG_EXACT, 7, 8, 0x1122334455667788, 3, 4, b"payload")


def packed(head: bytes, payload: bytes) -> bytes:
    """Return 48 bytes of head with their CRC32, and the payload."""
    return head + struct.pack("<I", zlib.crc32(head + payload)) + payload


def test_the_head_is_the_one_on_the_format_page() -> None:
    data = FRAME.to_bytes()
    assert HEAD.size == 52
    assert data[:8] == b"FCMP" + bytes([1, 2, 2, 1])
    assert data[8:16].hex(" ", 4) == "07000000 08000000"
    assert data[16:24].hex() == "8877665544332211"
    assert data[24:48].hex(" ", 8) == "0300000000000000 0400000000000000 0700000000000000"
    assert data[48:52] == struct.pack("<I", zlib.crc32(data[:48] + b"payload"))
    assert data[52:] == b"payload"
    assert FRAME.size == len(data)


def test_frames_follow_each_other_to_the_end() -> None:
    other = Frame(Kind.ACK, 0, 0, 8, 8, 5, 6, 7)
    data = FRAME.to_bytes() + other.to_bytes() + FRAME.to_bytes()
    assert parse_frames(data) == (FRAME, other, FRAME)
    assert parse_frames(b"") == ()
    with pytest.raises(TruncatedError):
        parse_frames(data[:-1])


def test_every_frame_comes_back() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        kind, codec, flags = Kind(int(rng.integers(1, 6))), int(rng.integers(256)), int(rng.integers(2))
        base, version = (int(number) for number in rng.integers(0, 2**32, 2))
        layout, before, after = (int(number) for number in rng.integers(0, 2**64, 3, dtype=np.uint64))
        payload = rng.bytes(int(rng.integers(0, 99)))
        frame = Frame(kind, codec, flags, base, version, layout, before, after, payload)
        assert parse_single_frame(frame.to_bytes()) == frame


def test_an_offset_leads_to_the_next_frame() -> None:
    data = FRAME.to_bytes() + Frame(Kind.ACK, 0, 0, 1, 1, 2, 3, 4).to_bytes()
    first, offset = parse_frame(data)
    second, end = parse_frame(data, offset)
    assert (first, second.kind, second.payload, end) == (FRAME, Kind.ACK, b"", len(data))
    with pytest.raises(CorruptError, match="52 bytes"):
        parse_single_frame(data)


def test_every_truncation_is_refused() -> None:
    data = FRAME.to_bytes()
    for length in range(len(data)):
        with pytest.raises(TruncatedError):
            parse_frame(data[:length])


def test_every_changed_bit_is_refused() -> None:
    data = FRAME.to_bytes()
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(FedcompError):
            parse_single_frame(bytes(changed))


@pytest.mark.parametrize(
    ("place", "value", "numbers"),
    [
        (0, ord("X"), "XCMP.*FCMP"),
        (4, 2, "2; .* 1"),
        (5, 0, r"0; .* 1 \(KEY\), 2 \(DELTA\)"),
        (5, 99, r"99; .* 1 \(KEY\), 2 \(DELTA\)"),
        (7, 2, "0x2; .* 0x1, .* 0x2"),
        (7, 8, "0x8; .* 0x1, .* 0x2, .* 0x4, .* 0x8"),
        (7, 255, "0xff; .* 0x1, .* 0x2, .* 0x4, .* 0x8"),
    ],
)
def test_unknown_fields_are_refused_even_with_the_right_checksum(place: int, value: int, numbers: str) -> None:
    head = bytearray(FRAME.to_bytes()[:48])
    head[place] = value
    with pytest.raises(UnknownFormatError, match=numbers):
        parse_frame(packed(bytes(head), b"payload"))


@pytest.mark.parametrize("length", [8, 2**31, 2**40, 2**64 - 1])
def test_a_length_beyond_the_data_is_refused_before_memory_is_taken(length: int) -> None:
    head = FRAME.to_bytes()[:40] + struct.pack("<Q", length)
    with pytest.raises(TruncatedError, match=f"7 bytes .* {length}"):
        parse_frame(packed(head, b"payload"))


def test_an_offset_beyond_the_data_is_refused() -> None:
    with pytest.raises(TruncatedError, match="0 bytes; .* 52"):
        parse_frame(FRAME.to_bytes(), 10_000)
