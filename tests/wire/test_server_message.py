"""What the server says to one node."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest

from fedcomp.errors import CorruptError, FedcompError, TruncatedError, UnknownFormatError
from fedcomp.wire.frame import Frame, Kind
from fedcomp.wire.server_message import HEAD, Ack, ServerMessage, ack_of, parse_server_message

ONE = Frame(Kind.DELTA, 2, 0, 7, 8, 1, 2, 3, b"body")
TWO = Frame(Kind.DELTA, 2, 0, 8, 9, 1, 3, 4, b"another body")
ASKED = ServerMessage(5, Ack(4, 77), 9, 4, 2**64 - 1, "stc(density=0.1)", (ONE.to_bytes(), TWO.to_bytes()))


def test_the_head_is_what_the_page_says() -> None:
    data = ASKED.to_bytes()
    assert HEAD.size == 52
    assert data[:8] == b"FCIN" + bytes([1, 0, 16, 0])
    assert data[8:28] == struct.pack("<QQI", 5, 4, 77)
    assert data[28:48] == struct.pack("<QIQ", 2**64 - 1, 9, 4)
    assert data[48:52] == struct.pack("<I", zlib.crc32(data[:48] + b"stc(density=0.1)"))
    assert data[52:] == b"stc(density=0.1)" + ONE.to_bytes() + TWO.to_bytes()


def test_an_instruction_comes_back_with_its_frames_parsed() -> None:
    assert parse_server_message(ASKED.to_bytes()) == (ASKED, (ONE, TWO))
    bare = ServerMessage(1, Ack(), 0, 0, 0, "", ())
    assert parse_server_message(bare.to_bytes()) == (bare, ())


def test_a_lineage_follows_the_text() -> None:
    said = replace(ASKED, training_id=0x0102030405060708)
    data, without = said.to_bytes(), ASKED.to_bytes()
    assert data[5] == 1
    assert data[48:52] == struct.pack("<I", zlib.crc32(data[:48] + b"stc(density=0.1)" + data[68:76]))
    assert data[68:76] == bytes([8, 7, 6, 5, 4, 3, 2, 1])
    assert data[76:] == without[68:]
    assert parse_server_message(data) == (said, (ONE, TWO))


def test_lineage_0_is_none() -> None:
    data = bytearray(replace(ASKED, training_id=1).to_bytes())
    data[68] = 0
    data[48:52] = struct.pack("<I", zlib.crc32(data[:48] + data[52:76]))
    with pytest.raises(CorruptError, match="lineage 0"):
        parse_server_message(bytes(data))


def test_a_receipt_names_one_uplink() -> None:
    assert ack_of(5, b"frame") == Ack(5, zlib.crc32(b"frame"))
    assert ack_of(5, b"frame") != ack_of(6, b"frame")
    assert ack_of(5, b"frame") != ack_of(5, b"framf")


@pytest.mark.parametrize("training_id", [0, 2**64 - 1])
def test_every_truncation_within_it_is_refused(training_id: int) -> None:
    data = replace(ASKED, training_id=training_id).to_bytes()
    head = 52 + 16 + (8 if training_id else 0)
    whole = {head, head + ONE.size}
    for length in set(range(len(data))) - whole:
        with pytest.raises(TruncatedError):
            parse_server_message(data[:length])


@pytest.mark.parametrize("training_id", [0, 7])
def test_every_changed_bit_is_refused(training_id: int) -> None:
    data = replace(ASKED, training_id=training_id).to_bytes()
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(FedcompError):
            parse_server_message(bytes(changed))


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (3, ord("X"), "the bytes begin with b'FCIX'; an instruction begins with b'FCIN'"),
        (4, 2, "instruction format 2; this version reads format 1"),
        (5, 2, "instruction flags 0x2; only 0x1 is known"),
    ],
)
def test_what_is_not_known_is_refused_however_well_it_is_sealed(place: int, value: int, text: str) -> None:
    data = bytearray(ASKED.to_bytes())
    data[place] = value
    data[48:52] = struct.pack("<I", zlib.crc32(data[:48] + data[52:68]))
    with pytest.raises(UnknownFormatError, match=f"^{text}$"):
        parse_server_message(bytes(data))


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    head = ASKED.to_bytes()[:6] + struct.pack("<H", 2) + ASKED.to_bytes()[8:48]
    with pytest.raises(CorruptError, match="the instruction's text is not UTF-8"):
        parse_server_message(head + struct.pack("<I", zlib.crc32(head + b"\xff\xfe")) + b"\xff\xfe")


def test_random_bytes_are_refused() -> None:
    rng = np.random.default_rng(0)
    for turn in range(600):
        start = (b"", b"FCIN", b"FCIN\1\0")[turn % 3]
        with pytest.raises(FedcompError):
            parse_server_message(start + rng.bytes(int(rng.integers(0, 200))))
