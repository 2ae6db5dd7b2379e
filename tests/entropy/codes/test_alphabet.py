"""Streams of small symbols: each mode by hand, then that all come back in the fewest bytes, then damage."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import alphabet, plain_alphabet
from fedcomp.entropy.codes.alphabet import COMMON, write
from fedcomp.entropy.codes.plain_alphabet import FIXED
from fedcomp.errors import CorruptError, FedcompError
from tests.entropy.laws import check_cheap_refusals, check_truncations, survivors
from tests.entropy.slow_symbols import slow_symbols

Symbols = NDArray[Any]
Kind = tuple[list[float], int, int, int]


def read(data: bytes, count: int, bound: int) -> Symbols:
    reader = ByteReader(data)
    symbols = alphabet.read(reader, count, bound)
    reader.end()
    return symbols


def entropy_bits(symbols: Symbols) -> float:
    counts = np.bincount(symbols)
    counts = counts[counts > 0]
    return float(counts @ np.log2(symbols.size / counts))


def drawn(shares: list[float], count: int, bound: int, first: int = 0, step: int = 1, seed: int = 0) -> Symbols:
    """Return `count` symbols: first, first + step, ..., drawn with the given shares."""
    found = np.random.default_rng([seed, count]).choice(len(shares), count, p=np.array(shares) / sum(shares))
    return (first + step * found).astype(np.uint8 if bound <= 256 else np.uint16)


EXPONENTS = [2.0 ** -abs(place - 20) for place in range(40)]
KINDS: dict[str, Kind] = {
    # shares, bound, first, step
    "all of 16 alike": ([1] * 16, 16, 0, 1),
    "signs": ([1, 1], 2, 0, 1),
    "signs without a zero": ([1, 1], 3, 0, 2),
    "signs with few zeros": ([1, 0.004, 1], 3, 0, 1),
    "trits alike": ([1, 1, 1], 3, 0, 1),
    "ternary, 0.1 % left": ([0.0005, 0.999, 0.0005], 3, 0, 1),
    "ternary, 10 % left": ([0.05, 0.9, 0.05], 3, 0, 1),
    "ternary, 30 % left": ([0.15, 0.7, 0.15], 3, 0, 1),
    "five of 300": ([1, 2, 3, 2, 1], 300, 7, 60),
    "nine levels, mostly the middle": ([1, 2, 4, 8, 200, 8, 4, 2, 1], 9, 0, 1),
    "a bell of 100": ([math.exp(-(((place - 50) / 12) ** 2)) for place in range(100)], 255, 20, 1),
    "exponents": (EXPONENTS, 509, 200, 2),
    "all of 512": ([1 / (1 + place) for place in range(512)], 512, 0, 1),
    "one": ([1], 200, 9, 1),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


# ---- by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbols", "bound", "body"),
    [
        ([3, 0, 2, 1, 3, 3, 0, 0], 4, "00 04 c9f0"),  # all four: 11 00 10 01 11 11 00 00
        ([5] * 1000, 9, "00 01 50"),  # a set of one, 0101: no symbols follow
        ([2, 0, 0, 2, 2, 0, 2, 2, 2], 3, "00 02 a0 9b80"),  # a set of two as a bitmap, 101; 10011011 1
        ([0, 4, 255, 4, 255], 256, "00 03 0004ff 1980"),  # a set of three as a list; 00 01 10 01 10
    ],
)
def test_short_streams_are_those_written_by_hand(symbols: list[int], bound: int, body: str) -> None:
    data = write(np.array(symbols, np.uint8), bound)
    assert data == bytes.fromhex(body)
    assert read(data, len(symbols), bound).tolist() == symbols


def test_a_huffman_stream_is_the_one_written_by_hand() -> None:
    # 64 times 0 and one of each other: a codeword of 1 bit, and sixteen of 5.
    symbols = np.concatenate((np.zeros(64, np.uint8), np.arange(1, 17, dtype=np.uint8)))
    bits = "0" * 64 + "".join(f"1{place:04b}" for place in range(16))
    # mode, all of 17, tuples of one; the lengths; chunks of 2^9, 144 bits
    head = bytes.fromhex("02 11 01 155555555555555550 09 9001")
    data = b"".join(plain_alphabet.coded(plain_alphabet.histogram(symbols, 17), 1).write(symbols))
    assert data == head + int(bits, 2).to_bytes(18, "big")
    assert read(data, 80, 17).tolist() == symbols.tolist()


def test_five_trits_share_a_codeword() -> None:
    symbols = np.array([2, 0, 0, 0, 0] + [0] * 10 + [0, 0, 0, 1], np.uint8)
    data = b"".join(plain_alphabet.coded(plain_alphabet.histogram(symbols, 3), 5).write(symbols))
    # mode, all of 3, tuples of five; of 243 a set of 3 as a list: 00000, 00010 (whose last zero is padding), 20000;
    # their lengths 1, 2, 2, so codewords 0, 10, 11; chunks of 2^9, 6 bits
    assert data == bytes.fromhex("02 03 05 03 0003a2 1220 09 06") + bytes([0b11_0_0_10_00])
    assert read(data, 19, 3).tolist() == symbols.tolist()


def test_a_stream_of_common_symbols_is_the_one_written_by_hand() -> None:
    symbols = np.ones(1000, np.uint8)
    symbols[[7, 500]] = [2, 0]
    data = write(symbols, 3)
    # mode, a set of one as a bitmap, two others; positions, of any kind; then 2 and 0 as 1 and 0 of a set of two
    assert data[:4] == bytes([COMMON, 1, 0b010_00000, 2])
    assert data[-4:] == bytes([FIXED, 2, 0b101_00000, 0b10_000000])


def test_no_symbols_take_no_bytes() -> None:
    assert write(np.empty(0, np.uint8), 5) == b""
    symbols = read(b"", 0, 500)
    assert (symbols.size, str(symbols.dtype)) == (0, "uint16")


# ---- the law ---------------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("count", [1, 2, 7, 100, 3000, 70_001])
def test_symbols_come_back(kind: Kind, count: int) -> None:
    shares, bound, first, step = kind
    symbols = drawn(shares, count, bound, first, step)
    found = read(write(symbols, bound), count, bound)
    assert found.dtype == symbols.dtype
    assert (found == symbols).all()


@kinds
@pytest.mark.parametrize("count", [3, 2500])
def test_an_independent_decoder_finds_the_same_symbols(kind: Kind, count: int) -> None:
    shares, bound, first, step = kind
    symbols = drawn(shares, count, bound, first, step, seed=1)
    data = write(symbols, bound)
    assert slow_symbols(b"x" + data, 1, count, bound) == (symbols.tolist(), 1 + len(data))


@kinds
def test_no_mode_would_take_fewer_bytes_by_more_than_one_percent(kind: Kind) -> None:
    shares, bound, first, step = kind
    symbols = drawn(shares, 200_000, bound, first, step)
    counts = plain_alphabet.histogram(symbols, bound)
    used = int(np.count_nonzero(counts))
    plans: list[plain_alphabet.SymbolWriter] = [plain_alphabet.fixed(counts)]
    if used > 1:
        plans += [plain_alphabet.coded(counts, length) for length in {1, packing.max_digits(used)}]
        plans += [alphabet.common(counts, 1 << width) for width in range(3) if 1 << width < used]
    written = {plan: len(b"".join(plan.write(symbols))) for plan in plans if plan.bits < math.inf}
    assert len(write(symbols, bound)) <= 1.01 * min(written.values()) + 8
    for plan, size in written.items():
        assert plan.bits / 8 == pytest.approx(size, rel=0.015, abs=24)


@pytest.mark.parametrize("p", [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3])
def test_ternary_symbols_take_at_most_three_percent_more_than_their_entropy(p: float) -> None:
    symbols = drawn([p / 2, 1 - p, p / 2], 1_000_000, 3)
    assert entropy_bits(symbols) <= 8 * len(write(symbols, 3)) <= 1.03 * entropy_bits(symbols)


def test_signs_take_a_bit_each_and_their_zeros_next_to_nothing() -> None:
    signs = drawn([1, 1], 100_000, 3, 0, 2)
    assert len(write(signs, 3)) == 12_500 + 3
    signs[::10_000] = 1
    assert len(write(signs, 3)) < 12_500 + 50


def test_equally_frequent_levels_take_their_width() -> None:
    assert len(write(drawn([1] * 16, 100_000, 16), 16)) == 50_000 + 2


def test_symbols_of_varying_density_come_back() -> None:
    parts = [drawn([p, 1 - 2 * p, p], 30_000, 3, seed=place) for place, p in enumerate((0.3, 0.0001, 0.02, 0.45))]
    symbols = np.concatenate(parts)
    data = write(symbols, 3)
    assert data == write(symbols.copy(), 3)
    assert (read(data, symbols.size, 3) == symbols).all()


@pytest.mark.parametrize("other", [slice(5000, 6024), slice(None, None, 64), slice(0, 40_000)])
def test_others_at_equal_distances_come_back(other: slice) -> None:
    """Some codes for positions take next to nothing for them: the reader would take the body for a forged one."""
    symbols = np.full(100_003, 7, np.uint8)
    symbols[other] = 9
    assert np.array_equal(read(write(symbols, 16), symbols.size, 16), symbols)


def test_counts_are_those_of_numpy() -> None:
    for bound in (3, 8, 9, 64, 65, 300):
        symbols = drawn([1] * bound, 200_003, bound)
        assert plain_alphabet.histogram(symbols, bound).tolist() == np.bincount(symbols, minlength=bound).tolist()


def test_fixed_width_is_chosen_at_once_only_if_no_other_plan_is_shorter() -> None:
    rng = np.random.default_rng(6)
    fixed = 0
    for case in range(200):
        size = int(rng.choice([2, 3, 4, 5, 8, 16]))
        skew = rng.uniform(0, 0.3) * rng.integers(0, 2)
        counts = rng.multinomial(int(rng.integers(2, 20_000)), rng.dirichlet(np.full(size, 1 / (skew + 1e-4))))
        used = int(np.count_nonzero(counts))
        chosen = alphabet.plan(counts)
        if used < 2 or (used == 3 and chosen.mode != FIXED):
            continue
        others: list[plain_alphabet.SymbolWriter] = [
            plain_alphabet.coded(counts, length) for length in {1, packing.max_digits(used)}
        ]
        others += [alphabet.common(counts, 1 << width) for width in range(max(used - 1, 1).bit_length())]
        assert chosen.bits <= min(other.bits for other in others), case
        fixed += chosen.mode == FIXED
    assert fixed > 25


def test_tuples_are_left_out_only_if_they_take_more_bits() -> None:
    rng, taken = np.random.default_rng(8), 0
    for case in range(200):
        counts = rng.multinomial(int(rng.integers(20, 3000)), rng.dirichlet(np.ones(int(rng.choice([2, 3, 5, 15])))))
        if (used := int(np.count_nonzero(counts))) < 2:
            continue
        chosen, tuples = plain_alphabet.plan(counts), plain_alphabet.coded(counts, packing.max_digits(used))
        assert chosen.bits <= tuples.bits, case
        taken += chosen.bits == tuples.bits
    assert 25 < taken < 175


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "count", "bound", "numbers"),
    [
        ("", 8, 4, "0 bytes .* 1"),
        ("04 04 c9f0", 8, 4, "mode 4; .* 0, 2, 3"),
        ("01 03 32", 5, 3, "mode 1; .* 0, 2, 3"),
        ("00 05 c9f0", 8, 4, "5 symbols; 1 to 4"),
        ("00 00 c9f0", 8, 4, "0 symbols; 1 to 4"),
        ("00 04 c9", 8, 4, "1 bytes .* 2"),
        ("00 04 c9f1", 7, 4, "0xf1"),
        ("00 03 e1 c9", 4, 5, "0xe1"),
        ("00 03 e0 ff", 4, 5, "symbol 3 .* 3"),
        ("00 03 f0 ff", 4, 5, "4 symbols; 3"),
        ("00 02 00 ff", 4, 3, "0 symbols; 2"),
        ("00 02 0300 ff", 8, 200, "2 ascending ones below 200"),
        ("00 02 0303 ff", 8, 200, "2 ascending ones below 200"),
        ("00 02 03c8 ff", 8, 200, "2 ascending ones below 200"),
        ("00 02 03", 8, 200, "1 bytes .* 2"),
        ("02 03", 5, 3, "0 bytes .* 1"),
        ("02 03 02", 5, 3, "tuples of 2 .* 3 symbols; 1 or 5"),
        ("02 03 00", 5, 3, "tuples of 0 .* 3 symbols; 1 or 5"),
        ("02 01 40 01 10 0b 05 00", 5, 3, "1 symbol"),
        ("02 03 01 1221 0b 04 00", 5, 3, "0x21"),
        ("02 03 01 1230 0b 04 00", 5, 3, "28672 of 32768"),
        ("02 03 01 1220 0b 04 00", 5, 3, "4 bits of 5 .* 1 bytes"),
        ("02 03 01 1220 09 06 00", 5, 3, "chunk 0 ends at bit 5; 6"),
        ("02 03 05 02 0001 11 09 01 80", 1, 3, "symbol of 1 .* 0"),
        ("03 03", 9, 3, "3 common"),
        ("03 01 40 05", 9, 3, "5 other symbols of 9"),
        ("03 01 40 64", 9000, 3, "100 other symbols of 9000 with 0 bytes"),
        ("03 01 40 01 02 0100 03 01 40 01", 9, 3, "mode 3; .* 0, 2"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(body: str, count: int, bound: int, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        read(bytes.fromhex(body), count, bound)


@kinds
def test_every_truncation_is_refused(kind: Kind) -> None:
    shares, bound, first, step = kind
    check_truncations(lambda cut: read(cut, 300, bound), write(drawn(shares, 300, bound, first, step), bound))


@kinds
def test_changed_bytes_are_refused_or_other_symbols(kind: Kind) -> None:
    shares, bound, first, step = kind
    data = write(drawn(shares, 600, bound, first, step), bound)
    for found in survivors(lambda changed: read(changed, 600, bound), data, 40):
        assert found.size == 600
        assert found.max() < bound


def test_a_few_bytes_that_claim_two_thousand_million_symbols_cost_nothing() -> None:
    bodies = [
        "00 03",
        "02 03 01 1220 0b ffffffff07 00",
        "02 03 05 02 0001 11 0b cccc9933 00",
        "03 01 40 ffffffff03 01 0000",
        "03 01 40 20 01 00 8080808001 00",
        "03 02 c0 01 01 00 01 00 00 01 20",
    ]
    check_cheap_refusals(lambda data: read(data, 1 << 31, 3), [bytes.fromhex(body) for body in bodies])


def test_symbols_of_another_alphabet_are_refused() -> None:
    with pytest.raises(CorruptError):
        read(write(np.array([1, 4, 2], np.uint8), 5), 3, 4)
