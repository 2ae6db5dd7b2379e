"""Integers of a fixed width in a row of bits: by hand, then every width as text."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits import packing
from tests.reference import bits_of


def test_three_fields_of_three_bits_follow_each_other() -> None:
    packed = packing.write(np.array([0b101, 0b001, 0b110], np.uint32), 3)
    assert packed == bytes([0b101_001_11, 0b0_0000000])
    assert packing.read(np.frombuffer(packed, np.uint8), 3, 3).tolist() == [0b101, 0b001, 0b110]


@pytest.mark.parametrize("width", range(1, 32))
def test_every_width_is_written_as_text_would_be_and_comes_back(width: int) -> None:
    rng = np.random.default_rng(width)
    for count in (1, 7, 8, 9, 64, 513, packing.MAX_MATRIX_VALUES + 1):
        values = rng.integers(0, 2**32, count, dtype=np.uint32)
        low = values & np.uint32(2**width - 1)
        packed = packing.write(values, width)
        assert len(packed) == packing.size(count, width) == -(-count * width // 8)
        assert bits_of(packed) == "".join(f"{value:0{width}b}" for value in low.tolist()).ljust(8 * len(packed), "0")
        assert np.array_equal(packing.read(np.frombuffer(packed, np.uint8), width, count), low)


@pytest.mark.parametrize("width", [1, 2, 9])
@pytest.mark.parametrize("count", [1, packing.BLOCK, 2 * packing.BLOCK + 3])
def test_blocks_are_the_values_in_order(width: int, count: int) -> None:
    values = np.random.default_rng(count).integers(0, 1 << width, count, dtype=np.uint16)
    octets = np.frombuffer(packing.write(values, width), np.uint8)
    found = np.zeros(count, np.int64)
    for part, block in packing.read_blocks(octets, width, count):
        found[part] = block
    assert np.array_equal(found, values)


def test_unary_counts_of_several_blocks_come_back() -> None:
    counts = np.random.default_rng(0).integers(0, 5, 2 * BLOCK_ENTRIES + 5)
    packed = packing.write_unary(np.split(counts, [7, BLOCK_ENTRIES]), int(counts.sum()) + counts.size)
    assert np.array_equal(packing.read_unary(np.frombuffer(packed, np.uint8), counts.size, "counts"), counts)
