"""The laws of all entropy codes: bodies come back to the bit; damaged ones are refused or decode to finite values."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcomp.core import CompensatedUpdate, EncodeContext, Vector
from fedcomp.entropy import MAX_ENTRIES, EntropyCode, GolombTernary, StepsCode, TernaryCode
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.methods import parse
from fedcomp.quantized import QuantizedVector, Steps
from fedcomp.wire import CODECS, codec_id
from tests.entropy.laws import check_cheap_refusals, check_truncations, survivors
from tests.wire.specimens import TEXTS

Example = tuple[EntropyCode[Any], QuantizedVector]
N, SIDE = 301, 17
SHAPES = ((SIDE, SIDE), (N - SIDE * SIDE,))


def vector(seed: int, n: int = N) -> Vector:
    """Return a vector whose entries are Gaussian and, for odd seeds, mostly zero."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(n)
    return (values * (rng.random(n) < 0.05) if seed % 2 else values).astype(np.float32)


def quantized(text: str, values: Vector) -> Example:
    compressor = parse(text)
    shapes = SHAPES if values.size == N else ((values.size,),)
    compensated = CompensatedUpdate(values, context=EncodeContext(3, shapes=shapes))
    return compressor.entropy, compressor.quantizer.quantize(compensated)


def steps(seed: int) -> Example:
    """Return counts of few and of many bits, which share no zero bits for odd seeds."""
    rng = np.random.default_rng(seed)
    indices = np.flatnonzero(rng.random(N) < 0.3)
    counts = rng.integers(1, 2**20, indices.size) * rng.choice([-1, 1], indices.size) << (0 if seed % 2 else 7)
    return StepsCode(), Steps(N, indices, counts.astype(np.int32))


def ternary(seed: int) -> Example:
    """Return a ternary vector whose kept entries come in clusters for odd seeds."""
    _, value = quantized("stc(density=0.3)", vector(seed))
    return TernaryCode(), value


def golomb(seed: int) -> Example:
    """Return a ternary vector in the code of fedcomp 0.1."""
    return GolombTernary(), ternary(seed)[1]


EXAMPLES = {f"{text} {seed}": quantized(text, vector(seed)) for text in TEXTS for seed in (0, 1)} | {
    f"{make.__name__} {seed}": make(seed) for make in (steps, ternary, golomb) for seed in (0, 1)
}
examples = pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))


def test_the_examples_cover_every_codec_id() -> None:
    assert {codec_id(code) for code, _ in EXAMPLES.values()} == set(CODECS)


@examples
def test_a_body_comes_back_to_the_bit(example: Example) -> None:
    code, value = example
    body = code.encode(value)
    for found in (code.decode(body), code.decode(body, n=N)):
        assert type(found) is type(value)
        assert found.dense().tobytes() == value.dense().tobytes()
        assert code.encode(found) == body


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("n", [1, 2, 9, 20_011])
def test_vectors_of_any_length_come_back_to_the_bit(text: str, n: int) -> None:
    code, value = quantized(text, vector(n, n))
    assert code.decode(code.encode(value), n=n).dense().tobytes() == value.dense().tobytes()


# ---- damage ----------------------------------------------------------------------------------------------------------


@examples
def test_every_truncation_and_every_further_byte_is_refused(example: Example) -> None:
    code, value = example
    body = code.encode(value)
    check_truncations(lambda cut: code.decode(cut, n=N), body)
    with pytest.raises(CorruptError):
        code.decode(body + b"\0", n=N)


@examples
def test_another_number_of_entries_than_needed_is_refused(example: Example) -> None:
    code, value = example
    body = code.encode(value)
    for n in (0, N - 1, N + 1, 2**31):
        with pytest.raises(CorruptError, match=str(n)):
            code.decode(body, n=n)


@examples
def test_changed_bytes_are_refused_or_decode_to_a_finite_vector(example: Example) -> None:
    code, value = example
    for n in (N, None):
        for found in survivors(partial(code.decode, n=n), code.encode(value), 30):
            if n is None and found.n > 1 << 20:
                continue  # equal levels take a few bytes: dense() would take much memory
            dense = found.dense()
            assert (dense.dtype, dense.shape) == (np.dtype(np.float32), (n or found.n,))
            assert np.isfinite(dense).all()
            sparse = found.sparse()
            assert sparse is None or (np.diff(sparse.indices) > 0).all()


@pytest.mark.parametrize("number", sorted(set(CODECS) - {1}))
def test_a_few_bytes_that_claim_two_thousand_million_entries_cost_nothing(number: int) -> None:
    begin = write_varint(MAX_ENTRIES)
    counts = [write_varint(count) for count in (1, 60, 2**20, MAX_ENTRIES)]
    fillings = [b"", b"\0" * 40, b"\1\x1f" * 20, b"\3\1" + b"\xff" * 40, b"\0\0" + bytes.fromhex("0000003f") * 10]
    bodies = [begin + count + filling for count in counts for filling in fillings]
    check_cheap_refusals(CODECS[number].decode, bodies)


@pytest.mark.parametrize("number", sorted(set(CODECS) - {1}))
def test_an_empty_body_is_refused(number: int) -> None:
    with pytest.raises(FedcompError):
        CODECS[number].decode(b"")
