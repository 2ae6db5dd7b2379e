"""Dense, sparse, ternary and seeded vectors."""

import tracemalloc

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, CompensatedUpdate, RandomStream
from fedcomp.quantized import Dense, QuantizedVector, Seeded, Sparse, SparseLevels, Ternary, seeded_indices

TERNARY = Ternary(5, np.array([1, 4]), np.array([True, False]), np.float32(0.5))


def test_ternary_sparse_and_dense_are_one_vector() -> None:
    assert TERNARY.dense().tolist() == [0, -0.5, 0, 0, 0.5]
    assert TERNARY.sparse().values.tolist() == [-0.5, 0.5]
    assert TERNARY.dense().dtype == TERNARY.sparse().values.dtype == np.float32
    assert Dense(TERNARY.dense()).sparse() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize("quantized", [TERNARY, TERNARY.sparse(), Dense(TERNARY.dense())])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_are_added_with_a_weight_in_the_precision_of_the_sum(
    quantized: QuantizedVector, dtype: type[np.floating]
) -> None:
    total = np.ones(5, dtype)
    quantized.add_to(total)
    quantized.add_to(total, 0.1)
    expected = np.array([1, 1 - 0.5, 1, 1, 1 + 0.5], dtype)
    expected[[1, 4]] += np.array([-0.05, 0.05], dtype)
    assert total.dtype == dtype
    assert np.array_equal(total, expected)


def test_adding_more_entries_than_a_block_adds_each_once() -> None:
    n = 2 * BLOCK_ENTRIES + 3
    values = np.random.default_rng(0).standard_normal(n, np.float32)
    for quantized in (Dense(values), Sparse(n, np.arange(n), values)):
        total = np.ones(n, np.float32)
        quantized.add_to(total)
        assert np.array_equal(total, 1 + values)


@pytest.mark.parametrize("n", [BLOCK_ENTRIES - 1, 2 * BLOCK_ENTRIES + 3])
def test_kept_entries_are_the_same_sparse_and_dense(n: int) -> None:
    rng = np.random.default_rng(n)
    negative, levels = rng.random(n) < 0.5, rng.integers(0, 200, n).astype(np.uint8)
    magnitudes, half = rng.uniform(1, 2, 200).astype(np.float32), np.float32(0.5)
    signs = np.where(negative, -1, 1).astype(np.float32)
    for quantized, values in (
        (Ternary(2 * n, np.arange(n) * 2, negative, half), signs * half),
        (SparseLevels(2 * n, np.arange(n) * 2, negative, levels, magnitudes), signs * magnitudes[levels]),
    ):
        sparse = quantized.sparse()
        assert np.array_equal(sparse.values, values)
        assert sparse.values.dtype == np.float32
        assert np.array_equal(quantized.dense(), sparse.dense())
        assert np.array_equal(quantized.dense()[::2], values)


def test_kept_entries_take_no_more_memory_than_their_values_and_a_block() -> None:
    n = 8 * BLOCK_ENTRIES
    negative, levels = np.ones(n, np.bool_), np.zeros(n, np.uint8)
    for quantized in (
        Ternary(n, np.arange(n), negative, np.float32(1)),
        SparseLevels(n, np.arange(n), negative, levels, np.ones(200, np.float32)),
    ):
        for read in (quantized.sparse, quantized.dense):
            tracemalloc.start()
            read()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 4 * n + 20 * BLOCK_ENTRIES


@pytest.mark.parametrize("n", [1, BLOCK_ENTRIES // 2, BLOCK_ENTRIES + 1, 64 * BLOCK_ENTRIES + 1])
def test_a_compensated_update_is_the_sum_in_every_way_of_reading_it(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)
    expected = first + second
    assert np.array_equal(CompensatedUpdate(first, second).dense(), expected)
    assert np.array_equal(
        np.concatenate([block.copy() for _, block in CompensatedUpdate(first, second).blocks()]), expected
    )
    assert next(start for start, _ in CompensatedUpdate(first, second).blocks()) == 0
    kept = first.copy()
    assert np.array_equal(CompensatedUpdate(kept, second).commit()[0], expected)
    total = CompensatedUpdate(first, second, in_place=True)
    assert np.array_equal(total.dense(), expected)
    assert np.array_equal(first, expected)
    assert total.commit()[0] is first


def test_a_sum_in_place_is_complete_even_if_it_is_not_read_to_its_end() -> None:
    first, second = np.ones(3 * BLOCK_ENTRIES, np.float32), np.full(3 * BLOCK_ENTRIES, 2, np.float32)
    total = CompensatedUpdate(first, second, in_place=True)
    blocks = total.blocks()
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert (first == 3).all()
    assert total.commit()[0] is first


def by_hand() -> Seeded:
    # the first raw words of seed 77 are, modulo 200, 185, 107, 27 and 95
    return Seeded(200, 77, seeded_indices(200, 4, 77), np.array([1.5, -0.75, -1.25, 3], np.float32))


def test_the_positions_are_those_of_the_seed() -> None:
    assert seeded_indices(200, 4, 77).tolist() == [27, 95, 107, 185]
    assert np.array_equal(seeded_indices(1000, 30, 5), RandomStream(5).subset(1000, 30))


def test_a_seed_is_taken_modulo_2_to_the_64() -> None:
    for seed, same in ((2**64 + 77, 77), (-1, 2**64 - 1)):
        assert np.array_equal(seeded_indices(200, 4, seed), seeded_indices(200, 4, same))


def test_values_are_in_the_order_of_their_positions() -> None:
    sparse = by_hand().sparse()
    assert sparse.n == 200
    assert dict(zip(sparse.indices.tolist(), sparse.values.tolist(), strict=True)) == {
        27: 1.5,
        95: -0.75,
        107: -1.25,
        185: 3,
    }
    dense = by_hand().dense()
    assert dense.dtype == np.float32
    assert dense.shape == (200,)
    assert np.count_nonzero(dense) == 4
    assert dense[107] == -1.25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kept_entries_are_added_in_place(dtype: type[np.floating]) -> None:
    vector = np.ones(200, dtype)
    by_hand().add_to(vector, 2.0)
    assert np.array_equal(vector, 1 + 2 * by_hand().dense().astype(dtype))
