"""Float32 entries as in memory: by hand, back and forth, and damage."""

import math
import struct

import numpy as np
import pytest

from fedcomp.entropy import Raw
from fedcomp.errors import CorruptError
from fedcomp.quantized import Dense


def test_an_entry_is_four_bytes_the_low_one_first() -> None:
    assert Raw().encode(Dense(np.array([1, -2], np.float32))).hex() == "0000803f000000c0"


def test_every_finite_vector_comes_back_to_the_bit_and_may_be_written() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32)
    vector = np.where(words & 0x7F800000 == 0x7F800000, words & 0xFF, words).astype(np.uint32).view(np.float32)
    found = Raw().decode(Raw().encode(Dense(vector)), n=1000).vector
    assert found.tobytes() == vector.tobytes()
    assert found.flags.writeable


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_a_length_that_is_no_multiple_of_four_is_refused(size: int) -> None:
    with pytest.raises(CorruptError, match=f"{size} bytes; .* 4"):
        Raw().decode(bytes(size))


@pytest.mark.parametrize("n", [0, 1, 3, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"8 bytes; {4 * n} for {n}"):
        Raw().decode(bytes(8), n=n)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    with pytest.raises(CorruptError, match="NaN or infinity"):
        Raw().decode(struct.pack("<3f", 0, 1, bad))
