"""The message from the server to one node: byte by byte, then damage."""

import struct
import zlib
from dataclasses import replace

import pytest

from fedcomp.errors import CorruptError, FedcompError, TruncatedError, UnknownFormatError
from fedcomp.wire import Ack, Frame, Kind, ServerMessage, ack_of, parse_server_message
from fedcomp.wire.server_message import HEAD

ONE = Frame(Kind.DELTA, 2, 0, 7, 8, 1, 2, 3, b"body")
TWO = Frame(Kind.DELTA, 2, 0, 8, 9, 1, 3, 4, b"another body")
MESSAGE = ServerMessage(5, Ack(4, 77), 9, 4, 2**64 - 1, "stc(density=0.1)", (ONE.to_bytes(), TWO.to_bytes()))


def test_the_head_is_what_the_page_says() -> None:
    data = MESSAGE.to_bytes()
    assert HEAD.size == 52
    assert data[:8] == b"FCIN" + bytes([1, 0, 16, 0])
    assert data[8:28] == struct.pack("<QQI", 5, 4, 77)
    assert data[28:48] == struct.pack("<QIQ", 2**64 - 1, 9, 4)
    assert data[48:52] == struct.pack("<I", zlib.crc32(data[:48] + b"stc(density=0.1)"))
    assert data[52:] == b"stc(density=0.1)" + ONE.to_bytes() + TWO.to_bytes()


def test_a_message_comes_back_with_its_frames_parsed() -> None:
    assert parse_server_message(MESSAGE.to_bytes()) == (MESSAGE, (ONE, TWO))
    bare = ServerMessage(1, Ack(), 0, 0, 0, "", ())
    assert parse_server_message(bare.to_bytes()) == (bare, ())


def test_the_training_id_and_the_epoch_follow_the_text_in_this_order() -> None:
    message = replace(MESSAGE, training_id=0x0102030405060708, epoch=0x1112131415161718)
    data, without = message.to_bytes(), MESSAGE.to_bytes()
    assert data[5] == 3
    assert data[48:52] == struct.pack("<I", zlib.crc32(data[:48] + b"stc(density=0.1)" + data[68:84]))
    assert data[68:84] == bytes([8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11])
    assert data[84:] == without[68:]
    assert parse_server_message(data) == (message, (ONE, TWO))


@pytest.mark.parametrize(("field", "flag"), [("training_id", 1), ("epoch", 2)])
def test_each_optional_field_may_come_alone(field: str, flag: int) -> None:
    message = replace(MESSAGE, **{field: 2**64 - 1})  # type: ignore[arg-type]
    data = message.to_bytes()
    assert data[5] == flag
    assert data[68:76] == b"\xff" * 8
    assert parse_server_message(data) == (message, (ONE, TWO))


@pytest.mark.parametrize("field", ["training_id", "epoch"])
def test_an_optional_field_of_0_is_refused(field: str) -> None:
    data = bytearray(replace(MESSAGE, **{field: 1}).to_bytes())  # type: ignore[arg-type]
    data[68] = 0
    data[48:52] = struct.pack("<I", zlib.crc32(data[:48] + data[52:76]))
    with pytest.raises(CorruptError, match="0"):
        parse_server_message(bytes(data))


@pytest.mark.parametrize("returned", [2.0**-53, 1 - 2.0**-0.5, 0.5, 1 - 2.0**-53])
def test_a_returned_share_comes_back_to_the_last_bit(returned: float) -> None:
    message = replace(MESSAGE, epoch=3, returned=returned)
    data = message.to_bytes()
    assert data[5] == 6
    assert int.from_bytes(data[76:84], "little") == returned * 2**53
    assert parse_server_message(data) == (message, (ONE, TWO))


def test_a_returned_share_of_all_or_more_is_refused() -> None:
    data = bytearray(replace(MESSAGE, returned=0.5).to_bytes())
    data[68:76] = (2**53).to_bytes(8, "little")
    data[48:52] = struct.pack("<I", zlib.crc32(data[:48] + data[52:76]))
    with pytest.raises(CorruptError, match=str(2**53)):
        parse_server_message(bytes(data))


def test_an_ack_names_one_update() -> None:
    assert ack_of(5, b"frame") == Ack(5, zlib.crc32(b"frame"))
    assert ack_of(5, b"frame") != ack_of(6, b"frame")
    assert ack_of(5, b"frame") != ack_of(5, b"framf")


@pytest.mark.parametrize("training_id", [0, 2**64 - 1])
@pytest.mark.parametrize("epoch", [0, 7])
def test_every_truncation_within_it_is_refused(training_id: int, epoch: int) -> None:
    data = replace(MESSAGE, training_id=training_id, epoch=epoch).to_bytes()
    head = 52 + 16 + 8 * (bool(training_id) + bool(epoch))
    complete = {head, head + ONE.size}
    for length in set(range(len(data))) - complete:
        with pytest.raises(TruncatedError):
            parse_server_message(data[:length])


@pytest.mark.parametrize("training_id", [0, 7])
@pytest.mark.parametrize("epoch", [0, 7])
def test_every_changed_bit_is_refused(training_id: int, epoch: int) -> None:
    data = replace(MESSAGE, training_id=training_id, epoch=epoch).to_bytes()
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(FedcompError):
            parse_server_message(bytes(changed))


@pytest.mark.parametrize(
    ("place", "value", "text"), [(3, ord("X"), "FCIX"), (4, 2, "format 2.* 1"), (5, 8, "0x8.*0x1.*0x2.*0x4")]
)
def test_an_unknown_magic_format_or_flag_is_refused_even_with_a_valid_crc(place: int, value: int, text: str) -> None:
    data = bytearray(MESSAGE.to_bytes())
    data[place] = value
    data[48:52] = struct.pack("<I", zlib.crc32(data[:48] + data[52:68]))
    with pytest.raises(UnknownFormatError, match=text):
        parse_server_message(bytes(data))


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    head = MESSAGE.to_bytes()[:6] + struct.pack("<H", 2) + MESSAGE.to_bytes()[8:48]
    with pytest.raises(CorruptError, match="UTF-8"):
        parse_server_message(head + struct.pack("<I", zlib.crc32(head + b"\xff\xfe")) + b"\xff\xfe")
