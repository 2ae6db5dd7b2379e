"""No loss at all."""

import math

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate
from fedcomp.errors import NonFiniteError
from fedcomp.quantize import Identity


def test_every_entry_stays_to_the_bit_and_is_a_copy() -> None:
    value = np.array([1, -0.0, 2.0**-149], np.float32)
    quantized = Identity().quantize(CompensatedUpdate(value))
    assert quantized.dense().tobytes() == value.tobytes()
    assert not np.shares_memory(quantized.vector, value)


def test_the_sum_of_two_parts_is_encoded() -> None:
    value = CompensatedUpdate(np.array([1, 2], np.float32), np.array([10, 20], np.float32))
    assert Identity().quantize(value).dense().tolist() == [11, 22]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, BLOCK_ENTRIES, 3 * BLOCK_ENTRIES])
def test_an_entry_that_is_not_finite_is_named(bad: float, place: int) -> None:
    value = np.zeros(3 * BLOCK_ENTRIES + 1, np.float32)
    value[place] = bad
    with pytest.raises(NonFiniteError, match=f"^entry {place} is {bad}; only finite values can be encoded$"):
        Identity().quantize(CompensatedUpdate(value))
