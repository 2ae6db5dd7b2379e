"""The k largest, exactly: by hand, against a sort, and with samples that mislead."""

import math
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, Vector
from fedcomp.errors import NonFiniteError
from fedcomp.quantize import TopK, num_kept, topk
from fedcomp.quantize.topk import MIN_SAMPLED, top_k
from tests.reference import slow_kept, slow_stc, sorted_kept

LARGE = 5 * BLOCK_ENTRIES + 7


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


def check(value: Vector, k: int) -> None:
    indices, values = top_k(CompensatedUpdate(value), k)
    assert np.array_equal(indices, sorted_kept(value, k))
    assert values.tobytes() == value[indices].tobytes()
    assert indices.dtype == np.int64


def random_vector(rng: np.random.Generator, n: int) -> Vector:
    """Return a vector with or without ties, few non-zeros, none at all, negative zeros, denormals."""
    kind = rng.integers(6)
    if kind == 0:
        return np.zeros(n, np.float32) * np.float32(rng.choice([-1, 1]))
    value = rng.standard_normal(n, np.float32)
    if kind == 1:
        value = np.round(value)
    elif kind == 2:
        value = rng.choice(np.array([-2, -1, -0.0, 0, 1, 2], np.float32), n)
    elif kind == 3:
        value *= rng.random(n) < 0.1
    elif kind == 4:
        value *= np.float32(1e-42)
    return value.astype(np.float32)


def test_the_two_largest_of_five_are_kept_with_their_signs() -> None:
    kept_entries = TopK(0.4).quantize(CompensatedUpdate(vector(0.5, -3, 0, 2, 1)))
    assert kept_entries.indices.tolist() == [1, 3]
    assert kept_entries.values.tolist() == [-3, 2]
    assert kept_entries.dense().tolist() == [0, -3, 0, 2, 0]


def test_the_lower_index_wins_a_tie() -> None:
    indices, _ = top_k(CompensatedUpdate(vector(1, -2, 2, -2, 2, 3)), 3)
    assert indices.tolist() == [1, 2, 5]


def test_zeros_are_not_kept_even_if_fewer_than_k_entries_are_not_zero() -> None:
    indices, values = top_k(CompensatedUpdate(vector(0, -0.0, 7, 0, -1)), 4)
    assert indices.tolist() == [2, 4]
    assert values.tolist() == [7, -1]


@pytest.mark.parametrize(
    ("density", "n", "k"),
    [(1 / 400, 1, 1), (1 / 400, 400, 1), (1 / 400, 401, 2), (1e-9, 10**6, 1), (1.0, 7, 7), (1, 7, 7), (0.25, 10, 3)]
    + [(0.07, 100, 7), (0.1 + 0.2, 10, 4), (5 / 9, 9, 5), (1 / 3, 3, 1)],
)
def test_k_is_the_ceiling_of_density_times_n_and_at_least_one(density: float, n: int, k: int) -> None:
    assert num_kept(density, n) == k


@pytest.mark.parametrize("n", [100, 784, 7850])
def test_the_fraction_k_of_n_keeps_k_entries_whichever_way_floats_round(n: int) -> None:
    assert [num_kept(k / n, n) for k in range(1, n + 1)] == list(range(1, n + 1))


@pytest.mark.parametrize("density", [0, -0.1, 1.0001, math.nan, math.inf, "0.1", None, [0.1]])
def test_a_density_that_is_no_fraction_is_refused(density: float) -> None:
    with pytest.raises(ValueError, match="density is .*; it is the fraction kept, above 0 and at most 1"):
        TopK(density)


def test_three_hundred_random_vectors_keep_exactly_the_largest() -> None:
    rng = np.random.default_rng(20)
    for turn in range(300):
        n = 1 if turn % 20 == 0 else int(rng.integers(1, 120))
        density = float(rng.choice([1.0, 1 / n, 10 ** rng.uniform(-4, 0), rng.random() or 1.0]))
        value = random_vector(rng, n)
        compressor = fedcomp.stc(density)
        body, state = compressor.encode(value, compressor.init(n))
        sent = compressor.decode(body, n)
        k = max(1, math.ceil(density * n))
        support = np.flatnonzero(sent)
        assert support.tolist() == slow_kept(value, k)
        assert support.size == min(k, np.count_nonzero(value))
        assert np.allclose(sent, slow_stc(value, density), rtol=1.2e-7, atol=1.5e-45)
        if support.size:
            magnitude = np.abs(sent[support])
            assert (magnitude == magnitude[0]).all()
            assert np.array_equal(np.sign(sent[support]), np.sign(value[support]))
        assert np.array_equal(state["residual"], value - sent)
        assert np.allclose(sent + state["residual"], value, rtol=1e-6, atol=1e-7 * np.abs(value).max())


@pytest.mark.parametrize("n", [MIN_SAMPLED - 1, MIN_SAMPLED, MIN_SAMPLED + 1, 2 * BLOCK_ENTRIES, LARGE])
@pytest.mark.parametrize("density", [1e-6, 1 / 400, 1 / 25, 0.3, 0.97, 1.0])
def test_large_vectors_keep_what_a_sort_finds(n: int, density: float) -> None:
    check(np.random.default_rng(n).standard_normal(n, np.float32), num_kept(density, n))


def test_millions_of_entries_read_in_larger_blocks_keep_what_a_sort_finds() -> None:
    n = 64 * BLOCK_ENTRIES + 5
    check(np.random.default_rng(n).standard_normal(n, np.float32), num_kept(0.1, n))


def test_more_than_16_million_entries_are_selected_exactly() -> None:
    value = np.zeros(2**24 + 3, np.float32)
    value[[0, 2**24, 2**24 + 2]] = 1, -3, 2
    assert top_k(CompensatedUpdate(value), 2)[0].tolist() == [2**24, 2**24 + 2]


def sampled(n: int) -> NDArray[np.bool_]:
    """Return which entries of a vector of fewer than 64 blocks are in the sample: every 64th run of 16."""
    places = np.zeros(n, np.bool_)
    places[: n // topk.RUN * topk.RUN].reshape(-1, topk.RUN)[32::64] = True
    return places


def test_a_sample_of_spikes_misleads_and_costs_only_time() -> None:
    k = 20_000
    value = np.random.default_rng(1).standard_normal(LARGE, np.float32)
    value[sampled(LARGE)] += np.float32(100)
    bound = topk.sampled_bound(CompensatedUpdate(value), k)
    assert np.count_nonzero(np.abs(value) > bound) < k, (
        "the first read must come back with too few; is `sampled` right?"
    )
    check(value, k)


def test_a_sample_of_zeros_misleads_and_costs_only_time() -> None:
    k = 1_000
    value = np.random.default_rng(2).standard_normal(LARGE, np.float32)
    value[sampled(LARGE)] = 0
    assert topk.sampled_bound(CompensatedUpdate(value), k) == 0, "every entry must pass; is `sampled` right?"
    check(value, k)


@pytest.mark.parametrize("k", [1, 100, 5000, BLOCK_ENTRIES, LARGE - 1, LARGE])
def test_massive_ties_keep_the_lowest_indices(k: int) -> None:
    signs = np.random.default_rng(k).choice(np.array([-1, 1], np.float32), LARGE)
    indices, _ = top_k(CompensatedUpdate(signs), k)
    assert np.array_equal(indices, np.arange(k))
    few = np.random.default_rng(k).choice(np.array([0, 0.5, -0.5, 0.25], np.float32), LARGE)
    check(few, k)


@pytest.mark.parametrize("k", [1, 700, 30_000])
def test_ascending_and_descending_magnitudes_keep_the_last_and_the_first(k: int) -> None:
    rising = np.arange(1, LARGE + 1, dtype=np.float32)
    assert np.array_equal(top_k(CompensatedUpdate(rising), k)[0], np.arange(LARGE - k, LARGE))
    assert np.array_equal(top_k(CompensatedUpdate(rising[::-1].copy()), k)[0], np.arange(k))


def test_a_strided_vector_is_read_correctly() -> None:
    whole = np.random.default_rng(3).standard_normal(2 * LARGE, np.float32)
    check(whole[::2], 900)
    check(whole[::-2], 900)


@pytest.mark.parametrize("n", [40, LARGE])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_entry_that_is_not_finite_is_named(n: int, bad: float) -> None:
    rng = np.random.default_rng(n)
    for place in (0, n // 2, n - 1):
        for density in (1e-4, 0.2, 1.0):
            value = rng.standard_normal(n, np.float32)
            value[place:] = np.where(rng.random(n - place) < 0.01, np.float32(bad), value[place:])
            value[place] = bad
            with pytest.raises(NonFiniteError) as caught:
                top_k(CompensatedUpdate(value), num_kept(density, n))
            assert caught.value.index == place
            assert str(caught.value) == f"entry {place} is {bad}; only finite values can be encoded"


def test_huge_values_are_kept_exactly_and_the_update_is_not_changed() -> None:
    rng = np.random.default_rng(5)
    compressor = fedcomp.stc(density=0.01)
    update = rng.standard_normal(LARGE, np.float32) * np.float32(1e30)
    before = update.tobytes()
    state = compressor.init(LARGE)
    target = np.zeros(LARGE, np.float32)
    for _ in range(3):
        target = state["residual"] + update
        body, state = compressor.encode(update, state)
        sent = compressor.decode(body, LARGE)
        assert np.array_equal(np.flatnonzero(sent), sorted_kept(target, num_kept(0.01, LARGE)))
        assert np.array_equal(state["residual"], target - sent)
    assert update.tobytes() == before


def test_encoding_allocates_at_most_a_quarter_of_the_vector() -> None:
    n = 2_000_000
    update = np.random.default_rng(6).standard_normal(n, np.float32)
    compressor = fedcomp.stc(density=1 / 100)
    _, state = compressor.encode(update, compressor.init(n))
    tracemalloc.start()
    held, _ = tracemalloc.get_traced_memory()
    compressor.encode(update, state)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - held <= update.nbytes / 4
