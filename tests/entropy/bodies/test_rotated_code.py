"""Rotated levels at a fixed width: by hand, back and forth, their size, and what a hostile body can say."""

import math
import tracemalloc

import numpy as np
import pytest

from fedcomp.core.compensated_update import CompensatedUpdate
from fedcomp.core.context import EncodeContext
from fedcomp.entropy.bits import varint
from fedcomp.entropy.bodies.rotated_code import RotatedBits
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, FedcompError, TruncatedError
from fedcomp.quantize.eden import Eden
from fedcomp.quantized.hadamard import ROTATION_BLOCK, chunk_count
from fedcomp.quantized.rotated import Rotated, rotated_count

CODE = RotatedBits()
ONE_BIT = "06 0400000000000000 0000803f 0000003f 00000040 d8"
FRACTION = "0a 0200000000000000 00002040 0000803f 00000040 e41bd0 80"
RATES = [1e-3, 0.3, 1.0, 1.25, 2.0, 2.5, 3.0, 3.75, 4.0]
SIZES = [1, 2, 7, 8, 9, 31, 1000, 5001, ROTATION_BLOCK - 1, ROTATION_BLOCK + 77]


def symbols(rate: float, n: int) -> Rotated:
    value = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    return Eden(rate).quantize(CompensatedUpdate(value, context=EncodeContext(n)))


def same(one: Rotated, other: Rotated) -> bool:
    heads = (one.n, one.seed, one.bits) == (other.n, other.seed, other.bits)
    if one.indices is None or other.indices is None:
        indices = one.indices is other.indices
    else:
        indices = np.array_equal(one.indices, other.indices)
    levels = one.levels.dtype == other.levels.dtype and np.array_equal(one.levels, other.levels)
    return heads and indices and levels and one.scales.tobytes() == other.scales.tobytes()


def test_one_bit_is_the_code_written_by_hand() -> None:
    # chunks of 4 and 2 entries; levels 1101 10 and two bits of padding
    value = Rotated(6, 4, 1.0, np.array([0.5, 2], np.float32), np.array([1, 1, 0, 1, 1, 0], np.uint8))
    assert CODE.encode(value) == bytes.fromhex(ONE_BIT)
    assert same(CODE.decode(bytes.fromhex(ONE_BIT), 6), value)
    # H (1, 1, -1, 1) / 2 = (1, -1, 1, 1) and H (1, -1) = (0, 2); the seed's signs are + - + + - -
    assert value.dense().tolist() == [0.5, 0.5, 0.5, 0.5, 0, -4]


def test_two_and_a_half_bits_are_the_code_written_by_hand() -> None:
    # two bits of each of ten; the seed gives a third one to the second group, entries 8 and 9: 111 and 010
    levels = np.array([3, 2, 1, 0, 0, 1, 2, 3, 7, 2], np.uint8)
    value = Rotated(10, 2, 2.5, np.array([1, 2], np.float32), levels)
    assert CODE.encode(value) == bytes.fromhex(FRACTION)
    assert same(CODE.decode(bytes.fromhex(FRACTION), 10), value)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_symbols_come_back_to_the_bit(rate: float, n: int) -> None:
    value = symbols(rate, n)
    body = CODE.encode(value)
    for found in (CODE.decode(body), CODE.decode(body, n)):
        assert same(found, value)
        assert found.dense().tobytes() == value.dense().tobytes()


@pytest.mark.parametrize("rate", RATES)
def test_a_body_takes_the_bits_that_were_asked_for(rate: float) -> None:
    n = 10 * ROTATION_BLOCK
    size = len(CODE.encode(symbols(rate, n)))
    rate = float(np.float32(rate))
    coins = 4 * math.sqrt(n / 8 * 0.25) + 1  # bytes: a fair coin or a biased one of each group, four standard errors
    assert size == pytest.approx(
        15 + 4 * chunk_count(rotated_count(rate, n)) + rate * n / 8, abs=coins if rate % 1 and rate > 1 else 1
    )


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("00 0400000000000000 0000803f 0000003f d8", "a body for no entries; it has one at least"),
        ("8180808008 0400000000000000 0000803f", "a body that claims 2147483649 entries; at most 2147483648"),
        ("06 0400000000000000 000080", "the body ends within seed and bits"),
        ("06 0400000000000000 00000000 0000003f 00000040 d8", "0.0 bits an entry; above 0 and at most 4"),
        ("06 0400000000000000 000080bf 0000003f 00000040 d8", "-1.0 bits an entry; above 0 and at most 4"),
        ("06 0400000000000000 0000c07f 0000003f 00000040 d8", "nan bits an entry; above 0 and at most 4"),
        ("06 0400000000000000 0000803e 0000003f 00000040 d8", "4 bytes of last bits; 0 groups have some"),
        ("06 0400000000000000 01008040 0000003f 00000040 d8", "4.000000476837158 bits an entry; above 0 and at most 4"),
        ("06 0400000000000000 0000803f 0000003f 000000", "7 bytes; 2 scales and 6 levels need 9"),
        ("06 0400000000000000 0000803f 0000003f 00000040", "8 bytes; 2 scales and 6 levels need 9"),
        ("06 0400000000000000 0000803f 000000bf 00000040 d8", "a scale that is negative, NaN or 6.6[0-9e+]* and more"),
        ("06 0400000000000000 0000803f 00000080 00000040 d8", "a scale that is negative, NaN or 6.6[0-9e+]* and more"),
        ("06 0400000000000000 0000803f 0000c07f 00000040 d8", "a scale that is negative, NaN or 6.6[0-9e+]* and more"),
        ("06 0400000000000000 0000803f 0000003f 0000007b d8", "a scale that is negative, NaN or 6.6[0-9e+]* and more"),
        ("06 0400000000000000 0000803f 0000003f 00000040 d9", "levels: the padding bits are not zero"),
        ("06 0400000000000000 0000803f 0000003f 00000040 d8 00", "1 bytes of last bits; 0 groups have some"),
        ("0a 0200000000000000 00002040 0000803f 00000040 e41bd0", "0 bytes of last bits; 1 groups or more have some"),
        ("0a 0200000000000000 00002040 0000803f 00000040 e41bd0 80 00", "2 bytes of last bits; 1 groups have some"),
        ("0a 0200000000000000 00002040 0000803f 00000040 e41bd1 80", "levels: the padding bits are not zero"),
        ("0a 0200000000000000 00002040 0000803f 00000040 e41bd0 81", "last bits: the padding bits are not zero"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, text: str) -> None:
    with pytest.raises(FedcompError, match=f"{text}$"):
        CODE.decode(bytes.fromhex(body))


@pytest.mark.parametrize("rate", RATES)
def test_every_truncation_and_every_byte_more_is_refused(rate: float) -> None:
    body = CODE.encode(symbols(rate, 700))
    for length in range(len(body)):
        with pytest.raises((TruncatedError, CorruptError)):
            CODE.decode(body[:length])
    with pytest.raises(CorruptError):
        CODE.decode(body + b"\0")


@pytest.mark.parametrize("n", [0, 5, 7, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"a body for 6 entries; {n} are needed"):
        CODE.decode(bytes.fromhex(ONE_BIT), n=n)


def test_changed_bytes_are_refused_or_decode_to_a_vector_like_any_other() -> None:
    rng = np.random.default_rng(5)
    bodies = [CODE.encode(symbols(rate, n)) for rate, n in ((1, 9), (0.3, 1000), (2.5, 333), (4, 50), (3.3, 5000))]
    refused = 0
    for _ in range(2000):
        body = bytearray(bodies[rng.integers(len(bodies))])
        for _ in range(rng.integers(1, 4)):
            body[rng.integers(min(len(body), rng.choice([20, len(body)])))] = rng.integers(256)
        try:
            found = CODE.decode(bytes(body), n=None)
        except FedcompError:
            refused += 1
            continue
        if found.n < 10**6:
            vector = found.dense()
            assert vector.size == found.n
            assert np.isfinite(vector).all()
    assert 500 < refused < 1900


def test_a_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    heads = [bytes.fromhex("0400000000000000") + np.array(rate, "<f4").tobytes() for rate in (1e-9, 1e-3, 1, 2.5, 4)]
    tracemalloc.start()
    for n in (1000, 2**20, MAX_ENTRIES):
        for head in heads:
            for rest in (b"", b"\0" * 5, b"\0" * 300):
                try:
                    CODE.decode(varint.put(n) + head + rest)
                except FedcompError:
                    continue
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000


def test_decoding_takes_memory_for_a_few_times_the_entries() -> None:
    n = 8 * ROTATION_BLOCK
    for rate in (1.0, 2.5, 4.0):
        body = CODE.encode(symbols(rate, n))
        tracemalloc.start()
        CODE.decode(body, n)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * n + 3_000_000


def test_a_vector_too_long_to_encode_is_refused() -> None:
    value = Rotated(MAX_ENTRIES + 1, 0, 1.0, np.zeros(1, np.float32), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="a vector of 2147483649 entries; at most 2147483648 can be encoded"):
        CODE.encode(value)
