"""Float32 entries as they lie in memory."""

import math
import struct

import numpy as np
import pytest

from fedcomp.entropy.bodies.raw import Raw
from fedcomp.errors import CorruptError
from fedcomp.quantized.vectors import Dense


def test_an_entry_is_four_bytes_the_low_one_first() -> None:
    assert Raw().encode(Dense(np.array([1, -2], np.float32))).hex() == "0000803f000000c0"


def test_every_vector_comes_back_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 1000):
        bits = rng.integers(0, 2**32, n, dtype=np.uint32)
        vector = np.where(bits & 0x7F800000 == 0x7F800000, bits & 0xFF, bits).astype(np.uint32).view(np.float32)
        body = Raw().encode(Dense(vector))
        for decoded in (Raw().decode(body), Raw().decode(body, n=n)):
            assert decoded.vector.tobytes() == vector.tobytes()
            assert decoded.vector.flags.writeable


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_a_length_that_is_no_multiple_of_four_is_refused(size: int) -> None:
    with pytest.raises(CorruptError, match=f"a raw body of {size} bytes; it needs a multiple of 4"):
        Raw().decode(bytes(size))


@pytest.mark.parametrize("n", [0, 1, 3, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"a raw body of 8 bytes; it needs {4 * n} for {n} entries"):
        Raw().decode(bytes(8), n=n)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    with pytest.raises(CorruptError, match="a raw body holds NaN or infinity"):
        Raw().decode(struct.pack("<3f", 0, 1, bad))
