"""Five trits a byte: by hand, then all of them, then bytes that are none."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy.bits import base3
from fedcomp.errors import CorruptError


def read(data: bytes, count: int) -> NDArray[np.uint8]:
    trits = np.full(count, 9, np.uint8)
    for part, found in base3.read(np.frombuffer(data, np.uint8), count):
        trits[part] = found
    return trits


def test_five_trits_are_the_digits_of_a_byte() -> None:
    assert base3.write(np.array([1, 2, 0, 1, 2], np.uint8)) == bytes([81 + 2 * 27 + 0 * 9 + 3 + 2])
    assert base3.write(np.array([2, 2, 2, 2, 2], np.uint8)) == bytes([242])
    assert base3.write(np.array([0, 0, 0, 0, 0, 1], np.uint8)) == bytes([0, 81])


def test_all_bytes_below_243_stand_for_different_trits() -> None:
    trits = read(bytes(range(243)), 243 * 5)
    assert base3.write(trits) == bytes(range(243))
    assert len({tuple(five) for five in trits.reshape(-1, 5).tolist()}) == 243


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, 999, base3.BLOCK - 1, base3.BLOCK, base3.BLOCK + 1])
def test_any_number_of_trits_comes_back(count: int) -> None:
    trits = np.random.default_rng(count).integers(0, 3, count).astype(np.uint8)
    data = base3.write(trits)
    assert len(data) == base3.size(count) == -(-count // 5)
    assert (read(data, count) == trits).all()


@pytest.mark.parametrize("octet", [243, 255])
def test_larger_bytes_are_refused(octet: int) -> None:
    with pytest.raises(CorruptError, match=f"a byte of {octet}; 5 symbols of 3 make less than 243"):
        read(bytes([0, octet]), 10)


def test_trits_behind_the_last_one_are_zero() -> None:
    assert read(bytes([81]), 4).tolist() == [1, 0, 0, 0]
    with pytest.raises(CorruptError, match="the symbols that fill up the last byte are not the first of the set"):
        read(bytes([82]), 4)
