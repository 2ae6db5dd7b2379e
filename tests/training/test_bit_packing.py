"""Packed integers: their bytes by hand, and what comes back."""

import pytest
import torch

from fedcomp.training.bit_packing import pack_bits, unpack_bits


def test_eight_codes_of_three_bits_are_three_bytes() -> None:
    """1 + 2 * 8 + 3 * 64 = 209, + 5 * 2^12 = 80 * 256, + 6 * 2^15 + 7 * 2^18 + 4 * 2^21 = 159 * 2^16."""
    codes = torch.tensor([1, 2, 3, 0, 5, 6, 7, 4], dtype=torch.uint8)
    (packed,) = pack_bits(codes, 3)
    assert packed.tolist() == [209, 80, 159]
    assert unpack_bits([packed], 3, 8).tolist() == codes.tolist()


def test_wide_codes_are_their_low_bytes_and_the_bits_that_are_left() -> None:
    """1023 is 255 and 3; 256 is 0 and 1; two bits each: 3 + 1 * 4 = 7."""
    low, high = pack_bits(torch.tensor([1023, 256]), 10)
    assert low.tolist() == [255, 0, 0, 0, 0, 0, 0, 0]
    assert high.tolist() == [7, 0]
    assert unpack_bits([low, high], 10, 2).tolist() == [1023, 256]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31])
def test_all_codes_come_back_from_the_bytes_that_their_width_takes(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    for count in (1, 7, 8, 9, 1000):
        codes = torch.randint(2**width, (count,), generator=generator)
        codes[0] = 2**width - 1
        given = codes.to(torch.uint8 if width <= 8 else torch.int32)
        packed = pack_bits(given, width)
        assert sum(plane.nbytes for plane in packed) == -(-count // 8) * width
        assert sum(plane.untyped_storage().nbytes() for plane in packed) <= max(8, -(-count // 8)) * width
        assert unpack_bits(packed, width, count).tolist() == codes.tolist()
