"""IDX files: the layout by hand, and damage."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data.card import Card
from fedcomp.data.dataset import DataError
from fedcomp.data.idx import parse_idx, read_split

BY_HAND = bytes([0, 0, 8, 2]) + bytes([0, 0, 0, 2]) + bytes([0, 0, 0, 3]) + bytes([1, 2, 3, 4, 5, 255])


def test_idx_by_hand() -> None:
    assert parse_idx(BY_HAND, "x").tolist() == [[1, 2, 3], [4, 5, 255]]


def test_integers_have_four_bytes_big_endian() -> None:
    data = bytes([0, 0, 12, 1]) + bytes([0, 0, 0, 2]) + bytes([0, 0, 1, 2]) + bytes([255, 255, 255, 254])
    assert parse_idx(data, "x").tolist() == [258, -2]
    with pytest.raises(DataError, match=r"x: 15 bytes; the dimensions \(2,\) need 16"):
        parse_idx(data[:-1], "x")


def test_any_array_decodes_to_itself_and_is_read_only(idx_bytes: Callable[[NDArray[np.uint8]], bytes]) -> None:
    rng = np.random.default_rng(1)
    for rank in (1, 2, 3, 4):
        array = rng.integers(0, 256, rng.integers(1, 6, rank), dtype=np.uint8)
        found = parse_idx(idx_bytes(array), "x")
        assert np.array_equal(found, array)
        assert not found.flags.writeable


def test_a_split_has_images_first_and_then_labels(
    make_card: Callable[..., Card], idx_bytes: Callable[[NDArray[np.uint8]], bytes]
) -> None:
    images, labels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.array([0, 2], np.uint8)
    x, y, _ = read_split(make_card(), {"x": idx_bytes(images), "y": idx_bytes(labels)})
    assert np.array_equal(x, images)
    assert np.array_equal(y, labels)


def test_every_truncation_is_refused() -> None:
    for length in range(len(BY_HAND)):
        with pytest.raises(DataError, match=rf"^x: {length} bytes; .* needs? \d+$"):
            parse_idx(BY_HAND[:length], "x")


def test_an_extra_byte_is_refused() -> None:
    with pytest.raises(DataError, match=r"x: 19 bytes; the dimensions \(2, 3\) need 18"):
        parse_idx(BY_HAND + b"\0", "x")


@pytest.mark.parametrize("magic", [b"\1\0\x08\2", b"\0\1\x08\2", b"\0\0\x0d\2", b"\0\0\x08\0", b"\x1f\x8b\x08\0"])
def test_another_magic_number_is_refused(magic: bytes) -> None:
    with pytest.raises(DataError, match=rf"x: magic number {magic.hex()}; .* needs 000008 or 00000c and a rank"):
        parse_idx(magic + BY_HAND[4:], "x")


def test_huge_dimensions_allocate_no_memory() -> None:
    hostile = struct.pack(">HBB255I", 0, 8, 255, *[0xFFFFFFFF] * 255)
    with pytest.raises(DataError, match="x: 1024 bytes; the dimensions"):
        parse_idx(hostile, "x")
