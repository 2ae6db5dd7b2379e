"""Fields of equal width in a row of bits."""

import numpy as np
import pytest

from fedcomp.entropy.bits import packing
from fedcomp.errors import CorruptError
from tests.reference import bits_of


def test_three_fields_of_three_bits_lie_one_after_the_other() -> None:
    packed = packing.pack(np.array([0b101, 0b001, 0b110], np.uint32), 3)
    assert packed == bytes([0b101_001_11, 0b0_0000000])
    assert packing.unpack(np.frombuffer(packed, np.uint8), 3, 3).tolist() == [0b101, 0b001, 0b110]


@pytest.mark.parametrize("width", range(1, 32))
def test_every_width_packs_as_text_would_and_comes_back(width: int) -> None:
    rng = np.random.default_rng(width)
    for count in (1, 7, 8, 9, 64, 513):
        values = rng.integers(0, 2**32, count, dtype=np.uint32)
        low = values & np.uint32(2**width - 1)
        packed = packing.pack(values, width)
        expected = "".join(f"{value:0{width}b}" for value in low.tolist())
        assert bits_of(packed) == expected.ljust(8 * len(packed), "0")
        assert len(packed) == -(-count * width // 8)
        assert np.array_equal(packing.unpack(np.frombuffer(packed, np.uint8), width, count), low)


def test_flags_are_single_bits() -> None:
    assert packing.flags(bytes([0b10100000]), 3, "signs").tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        (b"\xa1", 3, "signs: the padding bits are not zero"),
        (b"\xa0\x00", 3, "signs: 2 bytes; 3 bits need 1"),
        (b"", 1, "signs: 0 bytes; 1 bits need 1"),
    ],
)
def test_padding_that_is_not_zero_and_other_lengths_are_refused(data: bytes, count: int, text: str) -> None:
    with pytest.raises(CorruptError, match=f"^{text}$"):
        packing.flags(data, count, "signs")
