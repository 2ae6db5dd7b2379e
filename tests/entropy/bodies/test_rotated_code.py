"""Rotated levels at a fixed width: by hand, back and forth, their size, and hostile bodies."""

import math
from contextlib import suppress

import numpy as np
import pytest

from fedcomp.core import CompensatedUpdate, EncodeContext
from fedcomp.entropy import MAX_ENTRIES, RotatedBits
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import FedcompError
from fedcomp.quantize import Eden
from fedcomp.quantized import MAX_CHUNK, Rotated, Rotation, rotated_count
from tests.entropy.laws import check_round_trip, memory_below, same
from tests.reference import rotated_entries

CODE = RotatedBits()
ONE_BIT = "06 0400000000000000 0000803f 0000003f dd"
FRACTION = "0a 0200000000000000 00002040 0000803f e41bd239 99"
RATES = [1e-3, 0.3, 1.0, 1.25, 2.0, 2.5, 3.0, 3.75, 4.0]
SIZES = [1, 2, 7, 8, 9, 31, 65, 1000, 5001, 2 * MAX_CHUNK - 1, 2 * MAX_CHUNK + 77]


def quantized(bits: float, n: int) -> Rotated:
    value = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    return Eden(bits).quantize(CompensatedUpdate(value, context=EncodeContext(n)))


def test_one_bit_is_the_code_written_by_hand() -> None:
    # one chunk of eight places, two of them padding; levels 1101 1101
    value = Rotated(6, 4, 1.0, np.array([0.5], np.float32), np.array([1, 1, 0, 1, 1, 1, 0, 1], np.uint8))
    assert CODE.encode(value) == bytes.fromhex(ONE_BIT)
    assert same(CODE.decode(bytes.fromhex(ONE_BIT), 6), value)
    # H (1, 1, -1, 1, 1, 1, -1, 1) / 4 = (1, -1, 1, 1, 0, 0, 0, 0); the seed starts in place 1, its signs are + - + + - -
    assert value.dense().tolist() == [-1, -1, 1, 0, 0, -1]


def test_two_and_a_half_bits_are_the_code_written_by_hand() -> None:
    # two bits in each of 16 places; the seed gives a third one to the second group
    levels = np.array([3, 2, 1, 0, 0, 1, 2, 3, 7, 2, 0, 5, 1, 6, 4, 3], np.uint8)
    value = Rotated(10, 2, 2.5, np.array([1], np.float32), levels)
    assert CODE.encode(value) == bytes.fromhex(FRACTION)
    assert same(CODE.decode(bytes.fromhex(FRACTION), 10), value)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("bits", RATES)
def test_levels_come_back_to_the_bit(bits: float, n: int) -> None:
    check_round_trip(CODE, quantized(bits, n))


@pytest.mark.parametrize("bits", RATES)
def test_a_slow_reader_finds_the_same_vector_to_the_bit(bits: float) -> None:
    for n in (3, 100, 5001):
        value = quantized(bits, n)
        assert rotated_entries(CODE.encode(value)).tobytes() == value.dense().tobytes()


@pytest.mark.parametrize("bits", RATES)
def test_a_body_takes_the_bits_that_it_is_set_to(bits: float) -> None:
    n = 10 * MAX_CHUNK + 1
    size = len(CODE.encode(quantized(bits, n)))
    bits = float(np.float32(bits))
    rotation = Rotation(n, rotated_count(bits, n))
    expected = 15 + 4 * rotation.num_chunks + max(1.0, bits) * rotation.places / 8
    coins = 4 * math.sqrt(n / 8 * 0.25) + 1  # bytes: a fair coin or a biased one of each group, four standard errors
    assert size == pytest.approx(expected, abs=coins if bits % 1 and bits > 1 else 1)


@pytest.mark.parametrize("n", [1, 64, 100, 7850, 102_538, 10**6])
def test_a_body_takes_no_more_than_a_hundredth_of_a_bit_and_a_few_words_beside_the_levels(n: int) -> None:
    assert len(CODE.encode(quantized(1.0, n))) <= 15 + 63 / 8 + 4 * math.log2(2 * n) + n * 1.01 / 8


# ---- damage ----------------------------------------------------------------------------------------------------------


HEAD = "06 0400000000000000 0000803f"


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("00 0400000000000000 0000803f 0000003f dd", "0 entries; at least 1"),
        ("8180808008 0400000000000000 0000803f", "2147483649 entries; .* 2147483648"),
        ("06 0400000000000000 000080", "11 bytes .* 12"),
        ("06 0400000000000000 00000000 0000003f dd", "0.0 bits .* 4"),
        ("06 0400000000000000 000080bf 0000003f dd", "-1.0 bits .* 4"),
        ("06 0400000000000000 0000c07f 0000003f dd", "nan bits .* 4"),
        ("06 0400000000000000 01008040 0000003f dd", "4.000000476837158 bits .* 4"),
        (f"{HEAD} 0000003f", "0 bytes .* 1"),
        (f"{HEAD} 000000bf dd", "1.66[0-9]*e.35"),
        (f"{HEAD} 00000080 dd", "1.66[0-9]*e.35"),
        (f"{HEAD} 0000c07f dd", "1.66[0-9]*e.35"),
        (f"{HEAD} 0000007a dd", "1.66[0-9]*e.35"),
        (f"{HEAD} 0000003f dd 00", "1 bytes of last bits; 0 groups"),
        ("03 0400000000000000 0000803f 0000003f d8", "0xd8"),
        ("0a 0200000000000000 00002040 0000803f e41bd239", "0 bytes of last bits; 1 groups"),
        ("0a 0200000000000000 00002040 0000803f e41bd239 99 00", "2 bytes of last bits; 1 groups"),
        ("02 0300000000000000 00002040 0000803f 40 01", "padding bits"),
        ("02 0300000000000000 00002040 0000803f 41 00", "0x41"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        CODE.decode(bytes.fromhex(body))


def test_a_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    heads = [bytes.fromhex("0400000000000000") + np.array(bits, "<f4").tobytes() for bits in (1e-9, 1e-3, 1, 2.5, 4)]
    fillings = (b"", b"\0" * 5, b"\0" * 300)
    bodies = [write_varint(n) + head + rest for n in (1000, 2**20, MAX_ENTRIES) for head in heads for rest in fillings]
    with memory_below(500_000):
        for body in bodies:
            with suppress(FedcompError):
                CODE.decode(body)


def test_decoding_takes_memory_for_a_few_times_the_entries() -> None:
    n = 16 * MAX_CHUNK
    for bits in (1.0, 2.5, 4.0):
        body = CODE.encode(quantized(bits, n))
        with memory_below(2 * n + 3_000_000):
            CODE.decode(body, n)


def test_a_vector_too_long_to_encode_is_refused() -> None:
    value = Rotated(MAX_ENTRIES + 1, 0, 1.0, np.zeros(1, np.float32), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="a vector of 2147483649 entries; at most 2147483648 can be encoded"):
        CODE.encode(value)
