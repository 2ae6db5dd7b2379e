"""Fields one after the other: varints from the textbook, arrays, bits and their padding."""

import numpy as np
import pytest

from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.errors import CorruptError, TruncatedError


def test_fields_follow_each_other() -> None:
    reader = ByteReader(bytes.fromhex("07 c801 0000803f 0001 a0 ff"))
    assert reader.byte("kind") == 7
    assert reader.varint("n") == 200
    assert reader.array("<f4", 1, "scale").tolist() == [1]
    assert reader.take(2, "octets").tolist() == [0, 1]
    assert reader.flags(3, "signs").tolist() == [True, False, True]
    assert (reader.offset, reader.left) == (10, 1)
    with pytest.raises(CorruptError, match="1 bytes"):
        reader.end()
    assert reader.bits(8, "flags").tolist() == [255]
    reader.end()


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (200, "c801"), (300, "ac02"), (2**31, "8080808008")],
)
def test_a_varint_is_the_textbook_one(value: int, code: str) -> None:
    assert write_varint(value).hex() == code
    assert ByteReader(bytes.fromhex(code)).varint("n") == value


def test_every_varint_comes_back_in_the_fewest_bytes() -> None:
    for value in [*range(1000), *(2**power + more for power in range(7, 62) for more in (-1, 0, 1)), 2**63 - 1]:
        code = write_varint(value)
        reader = ByteReader(code + b"\xff")
        assert (reader.varint("n"), reader.left) == (value, 1)
        assert len(code) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("code", ["8000", "ff00", "c88000"])
def test_a_varint_longer_than_needed_is_refused(code: str) -> None:
    with pytest.raises(CorruptError, match=f"n: .* {len(code) // 2} bytes"):
        ByteReader(bytes.fromhex(code)).varint("n")


@pytest.mark.parametrize("code", [b"\xff" * 10**6, b"\x80" * 9 + b"\x01"])
def test_a_varint_of_more_than_63_bits_is_refused_after_nine_bytes(code: bytes) -> None:
    reader = ByteReader(code)
    with pytest.raises(CorruptError, match="n: .* 63"):
        reader.varint("n")
    assert reader.offset == 9


def test_a_field_that_ends_early_is_refused_and_named() -> None:
    reader = ByteReader(bytes(7))
    with pytest.raises(TruncatedError, match="scales: 7 .* 8"):
        reader.array("<f4", 2, "scales")
    with pytest.raises(TruncatedError, match="flags: 7 .* 8"):
        reader.bits(57, "flags")
    assert reader.take(7, "octets").size == 7
    with pytest.raises(TruncatedError, match="kind: 0 .* 1"):
        reader.byte("kind")
    for length in range(9):
        with pytest.raises(TruncatedError, match="k: 0 .* 1"):
            ByteReader(write_varint(2**62)[:length]).varint("k")


@pytest.mark.parametrize(("data", "count"), [(b"\xa1", 3), (b"\xa0\x80", 8 + 0), (b"\xff\x81", 15)])
def test_padding_bits_that_are_not_zero_are_refused(data: bytes, count: int) -> None:
    reader = ByteReader(data)
    if count % 8:
        with pytest.raises(CorruptError, match=f"signs: .*{data[-1]:#04x}"):
            reader.flags(count, "signs")
    else:
        assert reader.flags(count, "signs").tolist() == np.unpackbits(np.frombuffer(data[:1], np.uint8)).tolist()


def test_no_bytes_are_read_as_nothing() -> None:
    reader = ByteReader(b"")
    assert reader.array("<f4", 0, "values").size == reader.flags(0, "signs").size == 0
    reader.end()
