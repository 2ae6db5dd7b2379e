"""Random numbers: the same ones for ever, and fair."""

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from fedcomp.core.random_stream import RandomStream

RAW = [0xA00641A9F1E54A8B, 0xE5AFCDBCAF266A95, 0xC693565F940AF962, 0x39A72DABD56A2742]
"""The first raw words of seed 7.  Receivers draw the sender's numbers: another stream is another wire format."""


def chi_square(counts: list[int], expected: float) -> float:
    return sum((count - expected) ** 2 / expected for count in counts)


def most(freedom: int) -> float:
    """Return what chi-square of so many degrees of freedom exceeds by chance in about one of ten thousand."""
    return freedom + 4 * math.sqrt(2 * freedom)


def test_words_are_the_halves_of_the_raw_ones_the_lower_half_first() -> None:
    expected = [half for word in RAW for half in (word & 0xFFFFFFFF, word >> 32)]
    assert RandomStream(7).words(8).tolist() == expected
    assert RandomStream(7).words(3).tolist() == expected[:3]
    assert RandomStream(7).words(3).dtype == np.uint32


def test_uniform_numbers_are_the_upper_24_bits_of_the_words() -> None:
    assert RandomStream(7).uniform(3).tolist() == [0xF1E54A / 2**24, 0xA00641 / 2**24, 0xAF266A / 2**24]
    assert RandomStream(7).uniform(3).dtype == np.float32


def test_a_subset_is_the_first_different_remainders_in_order() -> None:
    # modulo 100 the raw words are 43, 25, 86, 14; modulo 4 they are 3, 1, 2, 2: all but the first of these is 0, 1, 2
    assert RandomStream(7).subset(100, 3).tolist() == [25, 43, 86]
    assert RandomStream(7).subset(100, 4).tolist() == [14, 25, 43, 86]
    assert RandomStream(7).subset(4, 3).tolist() == [0, 1, 2]


def test_equal_remainders_count_once() -> None:
    # modulo 8 the raw words are 3, 5, 2, 2, and the next one is not needed
    assert [word % 8 for word in RAW] == [3, 5, 2, 2]
    assert RandomStream(7).subset(8, 3).tolist() == [2, 3, 5]


def test_different_seeds_begin_different_streams() -> None:
    firsts = [
        RandomStream(*seed).words(1)[0] for seed in ((7,), (7, 1), (7, 2), (8,), (0,), (2**63 + 5,), (2**64 + 7,))
    ]
    assert len({int(word) for word in firsts}) == len(firsts)


def test_a_seed_is_its_words_of_32_bits_and_zeros_at_the_end_are_none() -> None:
    for seed, same in (((7, 0), (7,)), ((7 + 2**32,), (7, 1))):
        assert RandomStream(*seed).words(4).tolist() == RandomStream(*same).words(4).tolist()


def test_a_call_goes_on_where_the_one_before_ended() -> None:
    draws = RandomStream(7)
    draws.words(2)
    assert draws.words(2).tolist() == [RAW[1] & 0xFFFFFFFF, RAW[1] >> 32]


def test_the_stream_behind_a_subset_goes_on_after_as_many_draws_everywhere() -> None:
    # 3 + 9 // 200 + 4 * isqrt(3) + 8 words are drawn for 3 of 100
    draws, raw = RandomStream(7), RandomStream(7)
    draws.subset(100, 3)
    raw.words(2 * 15)
    assert draws.words(2).tolist() == raw.words(2).tolist()


def test_none_of_anything_is_nothing() -> None:
    for nothing in (RandomStream(7).words(0), RandomStream(7).uniform(0), RandomStream(7).subset(9, 0)):
        assert nothing.size == 0


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (2, 1), (7, 7), (1000, 1), (1000, 500), (1000, 501), (1000, 999)])
def test_a_subset_is_different_indices_ascending(n: int, k: int) -> None:
    for seed in range(30):
        chosen = RandomStream(seed).subset(n, k)
        assert chosen.dtype == np.int64
        assert chosen.size == k
        assert not k or (chosen[0] >= 0 and chosen[-1] < n and (np.diff(chosen) > 0).all())


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_every_subset_is_equally_likely(k: int) -> None:
    draws, rounds = RandomStream(k), 6000
    counts = dict.fromkeys(combinations(range(6), k), 0)
    for _ in range(rounds):
        counts[tuple(draws.subset(6, k).tolist())] += 1
    assert chi_square(list(counts.values()), rounds / len(counts)) < most(len(counts) - 1)


@pytest.mark.parametrize("density", [0.01, 0.3, 0.5, 0.8])
def test_a_large_subset_is_spread_evenly(density: float) -> None:
    n, parts = 200_000, 100
    k = int(density * n)
    counts = np.bincount(RandomStream(3).subset(n, k) // (n // parts), minlength=parts)
    # Drawn without putting back: the counts vary less, by 1 - density.
    assert chi_square(counts.tolist(), k / parts) / (1 - density) < most(parts - 1)


def test_uniform_numbers_are_spread_evenly() -> None:
    count = 100_000
    tenths = np.bincount((RandomStream(4).uniform(count) * 10).astype(int), minlength=10)
    assert tenths.size == 10
    assert chi_square(tenths.tolist(), count / 10) < most(9)


@pytest.mark.parametrize(("n", "k"), [(5, 6), (5, -1), (0, 1)])
def test_more_than_there_are_is_the_callers_mistake(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"{k} different indices below {n}; there are {n}"):
        RandomStream(0).subset(n, k)


def test_a_small_subset_of_a_huge_range_takes_little_memory() -> None:
    tracemalloc.start()
    chosen = RandomStream(6).subset(2**31, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert chosen.size == 1000
    assert peak < 100 * chosen.nbytes
