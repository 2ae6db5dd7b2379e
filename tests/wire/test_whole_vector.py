"""The vector of a key frame: the same bits, in the fewest bytes that any code takes for them."""

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy import GolombTernary, Raw, StepsCode
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import UNIT, Dense, Steps, Ternary
from fedcomp.wire import Layout, bfloat16_to_float32, float32_to_bfloat16, layout_of
from fedcomp.wire.whole_vector import FREE_ENTRIES, read_vector, write_vector

RNG = np.random.default_rng(3)
N = 4_000
GAUSSIAN = RNG.standard_normal(N, np.float32) * np.float32(0.05)
BF16 = bfloat16_to_float32(float32_to_bfloat16(GAUSSIAN))
ON_GRID = (np.rint(GAUSSIAN * 512) / 512 + 0.0).astype(np.float32)
MINUS_ZERO = ON_GRID.copy()
MINUS_ZERO[7] = -0.0


def layout(n: int = N) -> Layout:
    return layout_of({"w": np.zeros(n, np.float32)})


@pytest.mark.parametrize(
    ("vector", "codec", "bits"),
    [
        (GAUSSIAN, 0, 32),
        (GAUSSIAN.astype(np.float16).astype(np.float32), 4, 16.1),
        (BF16, 4, 16.1),
        (ON_GRID, 11, 8),
        (MINUS_ZERO, 4, 16.1),
        (np.where(RNG.random(N) < 0.1, ON_GRID, np.float32(0)), 11, 1.5),
        (np.zeros(N, np.float32), 11, 0.1),
        (np.full(N, 2.0**-25, np.float32), 4, 2.1),
        (np.full(N, 127.0, np.float32), 11, 7.1),
        (np.full(N, 3.1e38, np.float32), 0, 32),
    ],
    ids=["float32", "float16", "bfloat16", "grid", "minus zero", "sparse", "zeros", "below the unit", "large", "huge"],
)
def test_every_vector_comes_back_to_the_bit(vector: NDArray[np.float32], codec: int, bits: float) -> None:
    found, body = write_vector(vector)
    back = read_vector(found, body, layout())
    assert (back.dtype, back.tobytes()) == (vector.dtype, vector.tobytes())
    assert found == codec
    assert 8 * len(body) <= bits * N


def test_a_large_vector_that_no_code_makes_smaller_takes_no_memory_to_find_out() -> None:
    vector = np.random.default_rng(4).standard_normal(1 << 21, np.float32)
    tracemalloc.start()
    codec, body = write_vector(vector)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (codec, body) == (0, vector.tobytes())
    assert peak < 1.25 * 2 * vector.nbytes


def test_a_large_vector_on_the_grid_is_coded() -> None:
    vector = np.tile(ON_GRID, 20)
    codec, body = write_vector(vector)
    assert codec == 11
    assert len(body) < vector.size
    assert read_vector(codec, body, layout(vector.size)).tobytes() == vector.tobytes()


def test_few_bytes_claim_no_large_vector() -> None:
    """65,536 zeros take four bytes; a vector that is larger has a bit for each entry at least."""
    zeros = np.zeros(FREE_ENTRIES + 1, np.float32)
    codec, body = write_vector(zeros[1:])
    assert (codec, len(body)) == (11, 4)
    assert write_vector(zeros)[0] == 0
    for body in (StepsCode().encode(Steps(zeros.size, np.empty(0, np.int64), np.empty(0, np.int32))), bytes(8192)):
        with pytest.raises(CorruptError, match="65537 entries in .* bytes; each entry takes a bit"):
            read_vector(11, body, layout(zeros.size))
    with pytest.raises(CorruptError, match="^(?!.*takes a bit)"):
        read_vector(11, bytes(8193), layout(zeros.size))


@pytest.mark.parametrize("codec", [1, 2, 12, 99])
def test_other_codecs_are_refused(codec: int) -> None:
    one = Ternary(N, np.array([3]), np.array([False]), np.float32(UNIT))
    body = {1: Raw().encode(Dense(GAUSSIAN)), 2: GolombTernary().encode(one)}.get(codec, b"")
    with pytest.raises(CorruptError, match=f"a key frame of codec {codec}; 0, 4 or 11 is needed"):
        read_vector(codec, body, layout())


@pytest.mark.parametrize("codec", [0, 4, 11])
def test_a_vector_of_another_size_is_refused(codec: int) -> None:
    vector = {0: GAUSSIAN, 4: BF16, 11: ON_GRID}[codec]
    body = write_vector(vector)[1]
    for n in (N - 1, N + 1):
        with pytest.raises(CorruptError):
            read_vector(codec, body, layout(n))
    with pytest.raises((CorruptError, TruncatedError)):
        read_vector(codec, body[:-1], layout())


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(wrong: float) -> None:
    vector = GAUSSIAN.copy()
    vector[5] = wrong
    with pytest.raises(CorruptError, match="NaN or infinity"):
        read_vector(0, vector.tobytes(), layout())
