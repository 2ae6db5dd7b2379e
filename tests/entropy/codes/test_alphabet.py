"""Streams of small symbols: each mode by hand, then that all come back in the fewest bytes, then damage."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy.bits import tuples
from fedcomp.entropy.codes import alphabet
from fedcomp.entropy.codes.alphabet import COMMON, FIXED, put, take
from fedcomp.errors import CorruptError, FedcompError
from tests.entropy.slow_symbols import slow_symbols

Symbols = NDArray[Any]


def entropy_bits(symbols: Symbols) -> float:
    counts = np.bincount(symbols)
    counts = counts[counts > 0]
    return float(counts @ np.log2(symbols.size / counts))


def drawn(shares: list[float], count: int, bound: int, first: int = 0, step: int = 1, seed: int = 0) -> Symbols:
    """Return `count` symbols: first, first + step, ..., drawn with the given shares."""
    found = np.random.default_rng([seed, count]).choice(len(shares), count, p=np.array(shares) / sum(shares))
    return (first + step * found).astype(np.uint8 if bound <= 256 else np.uint16)


EXPONENTS = [2.0 ** -abs(place - 20) for place in range(40)]
KINDS: dict[str, tuple[list[float], int, int, int]] = {
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
        (
            [0, 4, 255, 4, 255, 0, 4, 255, 0, 0],
            256,
            "01 03 0004ff 322d",
        ),  # a set of three as a list; 01212 01200 to base 3
    ],
)
def test_short_streams_are_those_written_by_hand(symbols: list[int], bound: int, body: str) -> None:
    data = put(np.array(symbols, np.uint8), bound)
    assert data == bytes.fromhex(body)
    assert take(data, 0, len(symbols), bound)[0].tolist() == symbols


def test_a_huffman_stream_is_the_one_written_by_hand() -> None:
    # 64 times 0 and one of each other: a codeword of 1 bit, and sixteen of 5.
    symbols = np.concatenate((np.zeros(64, np.uint8), np.arange(1, 17, dtype=np.uint8)))
    bits = "0" * 64 + "".join(f"1{place:04b}" for place in range(16))
    # mode, all of 17, one at once; the lengths; chunks of 2^9, 144 bits
    head = bytes.fromhex("02 11 01 155555555555555550 09 9001")
    data = b"".join(alphabet.Coded(alphabet.histogram(symbols, 17), 1).write(symbols))
    assert data == head + int(bits, 2).to_bytes(18, "big")
    assert take(data, 0, 80, 17)[0].tolist() == symbols.tolist()


def test_five_trits_share_a_codeword() -> None:
    symbols = np.array([2, 0, 0, 0, 0] + [0] * 10 + [0, 0, 0, 1], np.uint8)
    data = b"".join(alphabet.Coded(alphabet.histogram(symbols, 3), 5).write(symbols))
    # mode, all of 3, five at once; of 243 a set of 3 as a list: 00000, 00010 (whose last zero fills up), 20000;
    # their lengths 1, 2, 2, so codewords 0, 10, 11; chunks of 2^9, 6 bits
    assert data == bytes.fromhex("02 03 05 03 0003a2 1220 09 06") + bytes([0b11_0_0_10_00])
    assert take(data, 0, 19, 3)[0].tolist() == symbols.tolist()


def test_a_stream_of_common_symbols_is_the_one_written_by_hand() -> None:
    symbols = np.ones(1000, np.uint8)
    symbols[[7, 500]] = [2, 0]
    data = put(symbols, 3)
    # mode, a set of one as a bitmap, two others; positions, of any kind; then 2 and 0 as 1 and 0 of a set of two
    assert data[:4] == bytes([COMMON, 1, 0b010_00000, 2])
    assert data[-4:] == bytes([FIXED, 2, 0b101_00000, 0b10_000000])


def test_no_symbols_take_no_bytes() -> None:
    assert put(np.empty(0, np.uint8), 5) == b""
    symbols, at = take(b"abc", 2, 0, 500)
    assert (symbols.size, str(symbols.dtype), at) == (0, "uint16", 2)


# ---- the law ---------------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("count", [1, 2, 7, 100, 3000, 70_001])
def test_symbols_come_back(kind: tuple[list[float], int, int, int], count: int) -> None:
    shares, bound, first, step = kind
    symbols = drawn(shares, count, bound, first, step)
    data = put(symbols, bound)
    found, at = take(b"before" + data + b"behind", 6, count, bound)
    assert found.dtype == symbols.dtype
    assert (found == symbols).all()
    assert at == 6 + len(data)


@kinds
@pytest.mark.parametrize("count", [3, 2500])
def test_streams_say_to_a_slow_reader_what_they_say_to_the_fast_one(
    kind: tuple[list[float], int, int, int], count: int
) -> None:
    shares, bound, first, step = kind
    symbols = drawn(shares, count, bound, first, step, seed=1)
    data = put(symbols, bound)
    assert slow_symbols(b"x" + data, 1, count, bound) == (symbols.tolist(), 1 + len(data))


@kinds
def test_no_mode_would_take_fewer_bytes_by_more_than_one_percent(kind: tuple[list[float], int, int, int]) -> None:
    shares, bound, first, step = kind
    symbols = drawn(shares, 200_000, bound, first, step)
    counts = alphabet.histogram(symbols, bound)
    used = np.flatnonzero(counts)
    plans: list[alphabet.Plan] = [alphabet.Fixed(counts)]
    if used.size == 3:
        plans.append(alphabet.Base3(counts))
    if used.size > 1:
        plans += [alphabet.Coded(counts, length) for length in {1, tuples.longest(used.size)}]
        plans += [alphabet.Common(counts, 1 << width) for width in range(3) if 1 << width < used.size]
    written = [len(b"".join(plan.write(symbols))) for plan in plans if plan.bits < math.inf]
    assert len(put(symbols, bound)) <= 1.01 * min(written) + 8
    for plan, size in zip([plan for plan in plans if plan.bits < math.inf], written, strict=True):
        assert plan.bits / 8 == pytest.approx(size, rel=0.015, abs=24)


@pytest.mark.parametrize("p", [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3])
def test_ternary_symbols_take_at_most_three_percent_more_than_their_entropy(p: float) -> None:
    symbols = drawn([p / 2, 1 - p, p / 2], 1_000_000, 3)
    assert entropy_bits(symbols) <= 8 * len(put(symbols, 3)) <= 1.03 * entropy_bits(symbols)


def test_signs_take_a_bit_each_and_their_zeros_next_to_nothing() -> None:
    signs = drawn([1, 1], 100_000, 3, 0, 2)
    assert len(put(signs, 3)) == 12_500 + 3
    signs[::10_000] = 1
    assert len(put(signs, 3)) < 12_500 + 50


def test_levels_that_are_all_alike_take_their_width() -> None:
    symbols = drawn([1] * 16, 100_000, 16)
    assert len(put(symbols, 16)) == 50_000 + 2


def test_symbols_of_another_density_here_and_there_come_back() -> None:
    parts = [drawn([p, 1 - 2 * p, p], 30_000, 3, seed=place) for place, p in enumerate((0.3, 0.0001, 0.02, 0.45))]
    symbols = np.concatenate(parts)
    data = put(symbols, 3)
    assert (take(data, 0, symbols.size, 3)[0] == symbols).all()


def test_the_same_symbols_give_the_same_bytes() -> None:
    symbols = drawn([1, 5, 20, 5, 1], 50_000, 7, 1)
    assert put(symbols, 7) == put(symbols.copy(), 7)


def test_counts_are_those_of_numpy() -> None:
    for bound in (3, 8, 9, 300):
        symbols = drawn([1] * bound, 200_003, bound)
        assert alphabet.histogram(symbols, bound).tolist() == np.bincount(symbols, minlength=bound).tolist()


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "count", "bound", "text"),
    [
        ("", 8, 4, "the body ends before the symbols"),
        ("04 04 c9f0", 8, 4, "symbols in mode 4; here it is one of 0 to 3"),
        ("00 05 c9f0", 8, 4, "a set of 5 symbols; there are 4"),
        ("00 00 c9f0", 8, 4, "a set of 0 symbols; there are 4"),
        ("00 04 c9", 8, 4, "symbols: 1 bytes; 2 are needed"),
        ("00 04 c9f1", 7, 4, "symbols: the padding bits are not zero"),
        ("00 03 e1 c9", 4, 5, "the set of symbols: the padding bits are not zero"),
        ("00 03 e0 ff", 4, 5, "symbol 3 of a set of 3"),
        ("00 03 f0 ff", 4, 5, "a set that is not 3 ascending symbols below 5"),
        ("00 02 0300 ff", 8, 200, "a set that is not 2 ascending symbols below 200"),
        ("00 02 0303 ff", 8, 200, "a set that is not 2 ascending symbols below 200"),
        ("00 02 03c8 ff", 8, 200, "a set that is not 2 ascending symbols below 200"),
        ("00 02 03", 8, 200, "the set of symbols: 1 bytes; 2 are needed"),
        ("01 02 a0 00", 5, 3, "2 symbols in base 3; 3 are needed"),
        ("01 03 f3", 5, 3, "a byte of 243; 5 symbols of 3 make less than 243"),
        ("01 03", 5, 3, "trits: 0 bytes; 1 are needed"),
        ("02 03", 5, 3, "the symbols at once: 0 bytes; 1 are needed"),
        ("02 03 02", 5, 3, "2 symbols at once of a set of 3; 1 or 5 is allowed"),
        ("02 03 00", 5, 3, "0 symbols at once of a set of 3; 1 or 5 is allowed"),
        ("02 01 40 01 10 0b 05 00", 5, 3, "a Huffman code of one symbol; two or more are needed"),
        ("02 03 01 1221 0b 04 00", 5, 3, "Huffman lengths: the padding bits are not zero"),
        ("02 03 01 1230 0b 04 00", 5, 3, "Huffman lengths that fill 28672 of 32768 codewords"),
        ("02 03 01 1220 0b 04 00", 5, 3, "Huffman codewords: 4 bits of 5 items; 1 bytes are left"),
        ("02 03 01 1220 0b 06 00", 5, 3, "Huffman codewords: chunk 0 does not end where it should"),
        ("03 03", 9, 3, "3 common symbols; a power of two is needed"),
        ("03 01 40 05", 9, 3, "5 other symbols of 9 in 4 bytes; they are half of all at most"),
        ("03 01 40 64", 9000, 3, "100 other symbols of 9000 in 4 bytes; they are half of all at most"),
        ("03 01 40 01 02 0100 03 01 40 01", 9, 3, "symbols in mode 3; here it is one of 0 to 2"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(body: str, count: int, bound: int, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}$"):
        take(bytes.fromhex(body), 0, count, bound)


@kinds
def test_every_truncation_is_refused(kind: tuple[list[float], int, int, int]) -> None:
    shares, bound, first, step = kind
    data = put(drawn(shares, 600, bound, first, step), bound)
    for length in range(len(data)):
        with pytest.raises(FedcompError):
            take(data[:length], 0, 600, bound)


@kinds
def test_changed_bytes_are_refused_or_other_symbols(kind: tuple[list[float], int, int, int]) -> None:
    shares, bound, first, step = kind
    rng = np.random.default_rng(3)
    data = put(drawn(shares, 3000, bound, first, step), bound)
    for _ in range(40):
        body = bytearray(data)
        body[rng.integers(min(len(body), 60 if rng.random() < 0.5 else len(body)))] = rng.integers(256)
        try:
            found, at = take(bytes(body), 0, 3000, bound)
        except FedcompError:
            continue
        assert found.size == 3000
        assert found.max() < bound
        assert at <= len(body)


@pytest.mark.parametrize(
    "body",
    [
        "00 03",
        "01 03 00",
        "02 03 01 1220 0b ffffffff07 00",
        "02 03 05 02 0001 11 0b cccc9933 00",
        "03 01 40 ffffffff03 01 0000",
        "03 01 40 20 01 00 8080808001 00",
        "03 02 c0 01 01 00 01 00 00 01 20",
    ],
)
def test_a_few_bytes_that_claim_two_thousand_million_codewords_cost_nothing(body: str) -> None:
    tracemalloc.start()
    with pytest.raises(FedcompError):
        take(bytes.fromhex(body), 0, 1 << 31, 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_other_symbols_in_a_set_than_the_reader_knows_are_refused() -> None:
    data = put(np.array([1, 4, 2], np.uint8), 5)
    with pytest.raises(CorruptError):
        take(data, 0, 3, 4)


def test_where_fixed_width_is_taken_at_once_no_other_way_is_shorter() -> None:
    rng = np.random.default_rng(6)
    at_once = 0
    for case in range(400):
        size = int(rng.choice([2, 4, 5, 8, 16]))
        skew = rng.uniform(0, 0.3) * rng.integers(0, 2)
        counts = rng.multinomial(int(rng.integers(2, 20_000)), rng.dirichlet(np.full(size, 1 / (skew + 1e-4))))
        used = int(np.count_nonzero(counts))
        if used < 2 or used == 3:
            continue
        chosen = alphabet.plan(counts)
        lengths = sorted({1, tuples.longest(used)})
        others: list[alphabet.Plan] = [alphabet.Coded(counts, length) for length in lengths]
        others += [alphabet.Common(counts, 1 << width) for width in range(max(used - 1, 1).bit_length())]
        assert chosen.bits <= min(other.bits for other in others), case
        at_once += isinstance(chosen, alphabet.Fixed)
    assert at_once > 50
