"""Seven bits a byte, low ones first."""

import pytest

from fedcomp.entropy.bits import varint
from fedcomp.errors import CorruptError, TruncatedError


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (200, "c801"), (300, "ac02"), (2**31, "8080808008")],
)
def test_the_code_is_the_textbook_one(value: int, code: str) -> None:
    assert varint.put(value).hex() == code
    assert varint.take(bytes.fromhex(code), 0, "n") == (value, len(code) // 2)


def test_every_value_comes_back_and_the_next_field_follows() -> None:
    for value in [*range(1000), *(2**power + more for power in range(7, 62) for more in (-1, 0, 1)), 2**63 - 1]:
        code = varint.put(value)
        assert varint.take(b"x" + code + b"\xff", 1, "n") == (value, 1 + len(code))
        assert len(code) == max(1, -(-value.bit_length() // 7))


def test_every_truncation_is_refused() -> None:
    code = varint.put(2**62)
    for length in range(len(code)):
        with pytest.raises(TruncatedError, match="^the body ends within k$"):
            varint.take(code[:length], 0, "k")


@pytest.mark.parametrize("code", ["8000", "ff00", "c88000"])
def test_a_longer_form_than_needed_is_refused(code: str) -> None:
    with pytest.raises(CorruptError, match="n is not written in its shortest form"):
        varint.take(bytes.fromhex(code), 0, "n")


def test_more_than_63_bits_are_refused_and_not_read_on() -> None:
    with pytest.raises(CorruptError, match="n does not fit 63 bits"):
        varint.take(b"\xff" * 10**6, 0, "n")
    assert varint.take(b"\xff" * 8 + b"\x7f", 0, "n") == (2**63 - 1, 9)
    with pytest.raises(CorruptError, match="n does not fit 63 bits"):
        varint.take(b"\x80" * 9 + b"\x01", 0, "n")
