"""Random numbers: always the same for a seed, and fair."""

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from fedcomp.core import RandomStream

RAW = [0xA00641A9F1E54A8B, 0xE5AFCDBCAF266A95, 0xC693565F940AF962, 0x39A72DABD56A2742]
"""The first raw words of seed 7.  Receivers draw the sender's numbers, so another stream would be another wire format."""


def chi_square(counts: list[int], expected: float) -> float:
    return sum((count - expected) ** 2 / expected for count in counts)


def chi_square_limit(freedom: int) -> float:
    """Return the value that chi-square with `freedom` degrees of freedom exceeds by chance about once in 10,000 times."""
    return freedom + 4 * math.sqrt(2 * freedom)


def test_words_are_the_halves_of_the_raw_words_lower_half_first() -> None:
    expected = [half for word in RAW for half in (word & 0xFFFFFFFF, word >> 32)]
    assert RandomStream(7).words(8).tolist() == expected
    assert RandomStream(7).words(3).tolist() == expected[:3]
    assert RandomStream(7).words(3).dtype == np.uint32


def test_uniform_numbers_are_the_upper_24_bits_of_the_words() -> None:
    assert RandomStream(7).uniform(3).tolist() == [0xF1E54A / 2**24, 0xA00641 / 2**24, 0xAF266A / 2**24]
    assert RandomStream(7).uniform(3).dtype == np.float32


def test_a_subset_is_the_first_different_remainders_in_order() -> None:
    # Modulo 100 the raw words are 43, 25, 86, 14.  Modulo 4 they are 3, 1, 2, 2: the subset of 3 leaves out the first, 3.
    assert RandomStream(7).subset(100, 3).tolist() == [25, 43, 86]
    assert RandomStream(7).subset(100, 4).tolist() == [14, 25, 43, 86]
    assert RandomStream(7).subset(4, 3).tolist() == [0, 1, 2]


def test_equal_remainders_count_once() -> None:
    assert [word % 8 for word in RAW] == [3, 5, 2, 2]
    assert RandomStream(7).subset(8, 3).tolist() == [2, 3, 5]


def test_different_seeds_start_different_streams() -> None:
    firsts = [
        RandomStream(*seed).words(1)[0] for seed in ((7,), (7, 1), (7, 2), (8,), (0,), (2**63 + 5,), (2**64 + 7,))
    ]
    assert len({int(word) for word in firsts}) == len(firsts)


def test_a_seed_is_its_32_bit_words_without_trailing_zeros() -> None:
    for seed, same in (((7, 0), (7,)), ((7 + 2**32,), (7, 1))):
        assert RandomStream(*seed).words(4).tolist() == RandomStream(*same).words(4).tolist()


def test_each_call_continues_where_the_last_one_stopped() -> None:
    stream = RandomStream(7)
    stream.words(2)
    assert stream.words(2).tolist() == [RAW[1] & 0xFFFFFFFF, RAW[1] >> 32]


def test_a_subset_consumes_a_number_of_words_that_depends_on_n_and_k_alone() -> None:
    # 3 + 9 // 200 + 4 * isqrt(3) + 8 words are drawn for 3 of 100
    stream, words = RandomStream(7), RandomStream(7)
    stream.subset(100, 3)
    words.words(2 * 15)
    assert stream.words(2).tolist() == words.words(2).tolist()


def test_no_words_numbers_or_indices_are_empty_arrays() -> None:
    for nothing in (RandomStream(7).words(0), RandomStream(7).uniform(0), RandomStream(7).subset(9, 0)):
        assert nothing.size == 0


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (2, 1), (7, 7), (1000, 1), (1000, 500), (1000, 501), (1000, 999)])
def test_the_indices_of_a_subset_are_different_and_ascending(n: int, k: int) -> None:
    for seed in range(30):
        chosen = RandomStream(seed).subset(n, k)
        assert chosen.dtype == np.int64
        assert chosen.size == k
        assert not k or (chosen[0] >= 0 and chosen[-1] < n and (np.diff(chosen) > 0).all())


def first_different(stream: RandomStream, n: int, k: int) -> list[int]:
    """Return the first `k` <= n / 2 different remainders modulo `n` of the stream's 64-bit words, ascending."""
    count = (
        k + k**2 // (2 * n) + k**3 // (3 * n**2) + k**4 // (4 * n**3) + 2 * k**5 // (5 * n**4) + 4 * math.isqrt(k) + 8
    )
    drawn: dict[int, None] = {}
    while len(drawn) < k:
        words = stream.words(2 * count).astype("<u4").view("<u8")
        drawn |= dict.fromkeys(word % n for word in words.tolist())
        count = k - len(drawn) + 8
    return sorted(list(drawn)[:k])


def test_dense_and_thin_subsets_are_the_first_different_remainders_and_consume_as_many_words() -> None:
    rng = np.random.default_rng(8)
    pairs = [(n, k) for n in (1, 2, 3, 64, 65, 4000, 30_000) for k in (0, 1, n // 64, n // 64 + 1, n // 2, n - 1, n)]
    for _ in range(150):
        n = int(2 ** rng.uniform(0, 14))
        pairs.append((n, int(rng.integers(n + 1) ** rng.uniform(0, 1))))
    for seed, (n, k) in enumerate(pairs):
        stream, words = RandomStream(seed), RandomStream(seed)
        drawn = first_different(words, n, min(k, n - k))
        expected = drawn if 2 * k <= n else sorted(set(range(n)) - set(drawn))
        assert stream.subset(n, k).tolist() == expected
        assert stream.words(2).tolist() == words.words(2).tolist()


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_every_subset_is_equally_likely(k: int) -> None:
    stream, rounds = RandomStream(k), 3000
    counts = dict.fromkeys(combinations(range(6), k), 0)
    for _ in range(rounds):
        counts[tuple(stream.subset(6, k).tolist())] += 1
    assert chi_square(list(counts.values()), rounds / len(counts)) < chi_square_limit(len(counts) - 1)


@pytest.mark.parametrize("density", [0.01, 0.3, 0.5, 0.8])
def test_a_large_subset_is_spread_evenly(density: float) -> None:
    n, parts = 200_000, 100
    k = int(density * n)
    counts = np.bincount(RandomStream(3).subset(n, k) // (n // parts), minlength=parts)
    # Drawn without replacement, the counts vary less, by the factor 1 - density.
    assert chi_square(counts.tolist(), k / parts) / (1 - density) < chi_square_limit(parts - 1)


def test_uniform_numbers_are_spread_evenly() -> None:
    count = 100_000
    tenths = np.bincount((RandomStream(4).uniform(count) * 10).astype(int), minlength=10)
    assert tenths.size == 10
    assert chi_square(tenths.tolist(), count / 10) < chi_square_limit(9)


@pytest.mark.parametrize(("n", "k"), [(5, 6), (5, -1), (0, 1)])
def test_a_subset_larger_than_the_range_is_refused(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"{k} .* {n};"):
        RandomStream(0).subset(n, k)


def test_a_small_subset_of_a_huge_range_takes_little_memory() -> None:
    tracemalloc.start()
    chosen = RandomStream(6).subset(2**31, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert chosen.size == 1000
    assert peak < 100 * chosen.nbytes
