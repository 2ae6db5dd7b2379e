"""Huffman codes: the textbook's, then that none is shorter and all symbols come back, then damage."""

import heapq
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy.bits import prefix_stream
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import huffman
from fedcomp.entropy.codes.huffman import MAX_LENGTH, Lengths, best_lengths, code_lengths, codewords, least_bits
from fedcomp.errors import CorruptError, FedcompError
from tests.entropy.laws import check_truncations, survivors
from tests.reference import bits_of

FRUIT = np.array([45, 13, 12, 16, 9, 5])
"""a to f, in thousands: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", the chapter on Huffman codes."""
LETTERS = np.arange(6, dtype=np.uint8)


def slow_cost(counts: NDArray[np.int64]) -> int:
    """Return the bits of the best code, by the textbook's queue: the sum of all counts that are ever joined."""
    queue = counts.tolist()
    heapq.heapify(queue)
    total = 0
    while len(queue) > 1:
        both = heapq.heappop(queue) + heapq.heappop(queue)
        total += both
        heapq.heappush(queue, both)
    return total


def package_merge(counts: NDArray[np.int64], limit: int) -> list[int]:
    """Return the lengths that the coins of a symbol buy: a coin of each list, and packages of the cheapest pairs of the last.

    Among equal ones, coins come before packages, and earlier symbols before later ones.
    """
    coins = [(int(counts[symbol]), [symbol]) for symbol in np.argsort(counts, kind="stable").tolist()]
    row: list[tuple[int, list[int]]] = []
    for _ in range(limit):
        packages = [(one[0] + two[0], one[1] + two[1]) for one, two in zip(row[::2], row[1::2], strict=False)]
        row = sorted(coins + packages, key=lambda item: item[0])
    bought = [symbol for _, symbols in row[: 2 * counts.size - 2] for symbol in symbols]
    return np.bincount(bought, minlength=counts.size).tolist() if bought else [0] * counts.size


def written(lengths: Lengths, symbols: NDArray[Any]) -> bytes:
    size = prefix_stream.BATCH
    batches = (symbols[start : start + size] for start in range(0, symbols.size, size))
    return huffman.write(batches, lengths, np.bincount(symbols, minlength=lengths.size))


def entropy(counts: NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum())


def test_the_code_is_the_textbooks() -> None:
    lengths = code_lengths(FRUIT)
    assert lengths.tolist() == [1, 3, 3, 3, 4, 4]
    words = [f"{word:0{length}b}" for word, length in zip(codewords(lengths), lengths, strict=True)]
    assert words == ["0", "100", "101", "110", "1110", "1111"]
    assert FRUIT @ lengths == 224


def test_the_stream_is_the_one_written_by_hand() -> None:
    data = written(code_lengths(FRUIT), np.array([5, 0, 2, 4], np.uint8))  # f a c e
    assert data[:5] == bytes.fromhex("133344 08 0c")  # lengths; chunks of 2^8, 12 bits
    assert bits_of(data[5:]) == "1111" + "0" + "101" + "1110" + "0000"


@pytest.mark.parametrize("limit", [3, 4, 15])
def test_a_lone_symbol_takes_no_bits(limit: int) -> None:
    assert code_lengths(np.array([7]), limit).tolist() == [0]


@pytest.mark.parametrize("size", [2, 3, 5, 17, 100, 256, 300, 512])
def test_lengths_are_the_best_and_fill_the_code(size: int) -> None:
    rng = np.random.default_rng(size)
    for counts in (rng.integers(1, 1000, size), rng.geometric(0.01, size), np.full(size, 9)):
        lengths = code_lengths(counts, 30)
        assert np.ldexp(1.0, -lengths.astype(int)).sum() == 1
        assert counts @ lengths == slow_cost(counts) == least_bits(counts)
        mean = counts @ lengths / counts.sum()
        assert entropy(counts) <= mean + 1e-12
        assert mean < entropy(counts) + 1


def test_each_symbol_rarer_than_all_before_it_takes_a_bit_more() -> None:
    fibonacci = np.array([1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610])
    assert sorted(code_lengths(fibonacci).tolist()) == [*range(1, 15), 14]
    halves = np.array([2.0**place for place in range(200)])
    assert least_bits(halves) == pytest.approx(2.0**201), "no limit of the lengths"


def test_lengths_stay_within_the_limit_and_are_the_best_that_do() -> None:
    fibonacci = np.array([1, 1, 2, 3, 5, 8])
    assert sorted(code_lengths(fibonacci).tolist()) == [1, 2, 3, 4, 5, 5]
    # With 3 bits for the longest: two codewords of 2 bits and four of 3 fill the code.
    assert code_lengths(fibonacci, 3).tolist() == [3, 3, 3, 3, 2, 2]
    # With 4 bits: those of 4, 4, 4, 4, 2, 1 bits take 28 + 10 + 8.
    assert fibonacci @ code_lengths(fibonacci, 4) == 46
    for limit in (9, 10, 12, 15):
        lengths = code_lengths(np.logspace(0, 18, 500).astype(np.int64), limit)
        assert lengths.max() == limit
        assert np.ldexp(1.0, -lengths.astype(int)).sum() == 1


def test_among_equally_good_lengths_the_choice_is_always_that_of_package_merge() -> None:
    """The choice is in the bytes of every stream."""
    few = [np.array(c) for size in range(2, 6) for c in combinations_with_replacement(range(1, 7), size)]
    rng = np.random.default_rng(1)
    many = [rng.integers(1, most, size) for most in (3, 6, 40) for size in (7, 12, 40, 130) for _ in range(5)]
    many += [2 ** rng.integers(0, 6, 30) for _ in range(20)]
    for counts in map(rng.permutation, few + many):
        for limit in {8, 10, 15}:
            assert code_lengths(counts, limit).tolist() == package_merge(counts, limit)


def test_more_symbols_than_codewords_are_refused() -> None:
    with pytest.raises(ValueError, match="9 .* 3 bits .* 8"):
        code_lengths(np.ones(9, np.int64), 3)


def test_shorter_codewords_are_taken_if_they_cost_next_to_nothing() -> None:
    # Almost all symbols are the same one: the others take next to nothing.
    for longest in (13, 14):
        rare = np.array([10**9] + [2**place for place in range(longest)])
        assert code_lengths(rare).max() == longest
        assert best_lengths(rare).max() == 12
    halves = 2 ** np.arange(20)
    assert best_lengths(halves).max() == 12
    assert halves @ best_lengths(halves) <= 1.003 * (halves @ code_lengths(halves, MAX_LENGTH))


@pytest.mark.parametrize(
    ("size", "dtype"), [(2, np.uint8), (11, np.uint8), (256, np.uint8), (257, np.uint16), (512, np.uint16)]
)
@pytest.mark.parametrize("count", [1, 2, 255, 4096, 70_001])
def test_symbols_come_back(size: int, dtype: Any, count: int) -> None:
    rng = np.random.default_rng([size, count])
    symbols = rng.choice(size, count, p=rng.dirichlet(np.full(size, 0.3))).astype(dtype)
    names = (np.arange(size) * 3 % 512).astype(dtype)
    reader = ByteReader(written(best_lengths(np.bincount(symbols, minlength=size) + 1), symbols))
    found = huffman.read(reader, count, names)
    reader.end()
    assert found.dtype == dtype
    assert (found == names[symbols]).all()


@pytest.mark.sample(18)
@pytest.mark.parametrize("size", [2, 3, 11, 60, 256])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 200, 513, 3000])
def test_codewords_read_one_by_one_are_those_read_in_lockstep(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And damaged streams are refused by both or by none."""
    rng = np.random.default_rng([size, count])
    symbols = rng.choice(size, count, p=rng.dirichlet(np.full(size, 0.3))).astype(np.uint8)
    names = rng.permutation(256).astype(np.uint8)[:size]
    data = written(best_lengths(np.bincount(symbols, minlength=size) + 1), symbols)
    places = [*range(48), *rng.choice(8 * len(data), 30).tolist()][: 8 * len(data)]
    outcomes: dict[int, list[bytes | None]] = {}
    for chunks in (0, 1 << 20):  # the first number of chunks for lockstep
        monkeypatch.setattr(huffman, "MIN_CHUNKS", chunks)
        outcomes[chunks] = [outcome(data, count, names)]
        for place in places:
            changed = bytearray(data)
            changed[place // 8] ^= 1 << place % 8
            outcomes[chunks].append(outcome(bytes(changed), count, names))
    assert outcomes[0] == outcomes[1 << 20]
    assert outcomes[0][0] == names[symbols].tobytes()
    assert None in outcomes[0]


def outcome(data: bytes, count: int, names: NDArray[np.uint8]) -> bytes | None:
    """Return the symbols in `data`, None if it is refused."""
    try:
        return huffman.read(ByteReader(data), count, names).tobytes()
    except FedcompError:
        return None


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "filled"),
    [("12", 24576), ("112", 40960), ("01", 49152), ("f" * 512, 512), ("1", None)],
)
def test_lengths_of_no_complete_code_are_refused(lengths: str, filled: int | None) -> None:
    names = np.arange(len(lengths), dtype=np.uint16)
    with pytest.raises(CorruptError, match=f"{filled} of 32768" if filled else "1 symbol"):
        huffman.read(ByteReader(bytes.fromhex(lengths.ljust(len(lengths) + len(lengths) % 2, "0"))), 5, names)


def test_damaged_codewords_are_refused_or_other_symbols() -> None:
    symbols = np.random.default_rng(0).choice(6, 600, p=FRUIT / FRUIT.sum()).astype(np.uint8)
    data = written(code_lengths(FRUIT), symbols)
    check_truncations(lambda cut: huffman.read(ByteReader(cut), 600, LETTERS), data)
    found = list(survivors(lambda changed: huffman.read(ByteReader(changed), 600, LETTERS), data, 200))
    assert len(found) < 150
    assert all(symbols.size == 600 and symbols.max() < 6 for symbols in found)
