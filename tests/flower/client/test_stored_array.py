"""Arrays of a node's state: the same values and dtypes back, in few bytes where most blocks are zero."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.errors import CORRUPTION_ERRORS
from fedcomp.flower.client.stored_array import BLOCKS_STYPE, restored, stored

N = 4 * BLOCK_ENTRIES + 7


def mostly_zero(dtype: Any) -> np.ndarray[Any, Any]:
    array = np.zeros(N, dtype)
    array[BLOCK_ENTRIES + 3 : BLOCK_ENTRIES + 9] = range(1, 7)
    array[-1] = 5
    return array


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_two_of_five_blocks_are_stored(dtype: Any) -> None:
    array = mostly_zero(dtype)
    kept = stored(array)
    assert kept.stype == BLOCKS_STYPE
    assert len(kept.data) == 5 + 4 * (BLOCK_ENTRIES + 7)
    back = restored(kept)
    assert back.dtype == dtype
    assert back.flags.writeable
    np.testing.assert_array_equal(back, array)


def test_a_negative_zero_among_zeros_keeps_its_sign() -> None:
    array = np.zeros(N, np.float32)
    array[BLOCK_ENTRIES + 3] = -0.0
    kept = stored(array)
    assert len(kept.data) == 5 + 4 * BLOCK_ENTRIES
    assert restored(kept).tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [np.ones(N, np.float32), np.zeros((2, N), np.float32), np.zeros(9, np.uint8)])
def test_other_arrays_are_stored_whole(array: np.ndarray[Any, Any]) -> None:
    kept = stored(array)
    assert kept.data == array.tobytes()
    np.testing.assert_array_equal(restored(kept), array)


@pytest.mark.parametrize("cut", [0, 3, 5, 100, -1])
def test_damaged_blocks_are_refused(cut: int) -> None:
    kept = stored(mostly_zero(np.float32))
    with pytest.raises(CORRUPTION_ERRORS):
        restored(Array(kept.dtype, kept.shape, kept.stype, kept.data[:cut]))
    with pytest.raises(CORRUPTION_ERRORS):
        restored(Array(kept.dtype, kept.shape, kept.stype, kept.data + b"0"))
