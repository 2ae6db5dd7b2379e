"""Selections other than the global top-k: by chunk, by tensor, by round, by seed, and in cheaper formats."""

import math

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext, Vector
from fedcomp.quantize import (
    ChunkedTopK,
    PerTensor,
    RoundValues,
    ScheduledTopK,
    SeededSubset,
    TensorTopK,
    Ternarize,
    TopK,
    chain,
)
from fedcomp.quantize.topk import largest


def slow_chunked(update: Vector, density: float, chunk: int) -> list[int]:
    """Return the kept indices, by a stable sort of every chunk, the last one padded with zeros."""
    rows = math.ceil(update.size / chunk)
    table = np.zeros(rows * chunk, np.float32)
    table[: update.size] = np.abs(update)
    rank = np.argsort(np.argsort(-table.reshape(rows, chunk), axis=1, kind="stable"), axis=1)
    kept = np.full((rows, 1), max(1, math.ceil(density * chunk)))
    kept[-1] = max(1, math.ceil(density * (update.size - (rows - 1) * chunk)))
    found: list[int] = np.flatnonzero((rank < kept).ravel() & (table > 0)).tolist()
    return found


def test_each_chunk_keeps_its_own_largest() -> None:
    update = np.array([1, -9, 2, 0.1, 0.3, -0.2, 7], np.float32)
    assert ChunkedTopK(1 / 3, 3).quantize(CompensatedUpdate(update)).indices.tolist() == [1, 4, 6]


@pytest.mark.sample(19)
@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1000, 4096, 5000, 1 << 17])
@pytest.mark.parametrize("density", [1e-6, 0.01, 1 / 64, 0.3, 0.6, 1.0])
def test_the_kept_entries_are_those_of_a_sort_of_each_chunk(chunk: int, density: float) -> None:
    rng = np.random.default_rng(chunk)
    sizes = (1, 31, 4096, 9001, 2 * BLOCK_ENTRIES + 77) if chunk > 2 else (1, 31, 999)
    for n in sizes:
        for update in (rng.standard_normal(n, np.float32), rng.integers(-2, 3, n).astype(np.float32)):
            found = ChunkedTopK(density, chunk).quantize(CompensatedUpdate(update))
            assert found.indices.tolist() == slow_chunked(update, density, chunk)
            assert np.array_equal(found.values, update[found.indices])


def test_zeros_are_never_kept_and_make_no_room_for_the_ties_of_another_chunk() -> None:
    assert not ChunkedTopK(0.5, 4).quantize(CompensatedUpdate(np.zeros(10, np.float32))).indices.size
    update = np.array([0, 0, 0, 0, 1, -5, 5, 5, 0, 3, 0, 0], np.float32)
    assert ChunkedTopK(0.5, 4).quantize(CompensatedUpdate(update)).indices.tolist() == [5, 6, 9]


def gaussian(n: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(n, np.float32)


def test_every_tensor_sends_its_own_largest() -> None:
    update = np.array([9, 8, 7, 6, 0.1, 0.2, 0.3, 0, 0], np.float32)
    context = EncodeContext(shapes=((2, 2), (3,), (2,)))
    found = TensorTopK(0.5).quantize(CompensatedUpdate(update, context=context))
    assert found.indices.tolist() == [0, 1, 5, 6]
    assert TensorTopK(0.5).quantize(CompensatedUpdate(update)).indices.tolist() == [0, 1, 2, 3, 6], (
        "no shapes: one tensor"
    )


def test_small_tensors_and_those_of_one_dimension_may_keep_all_entries() -> None:
    update = np.arange(1, 30, dtype=np.float32)
    context = EncodeContext(shapes=((4, 3), (5,), (), (0, 9), (2, 4), (3,)))
    kept = {
        below: TensorTopK(0.01, below).quantize(CompensatedUpdate(update, context=context)).indices.tolist()
        for below in (0, 1, 9)
    }
    assert kept[0] == [11, 16, 17, 25, 28]
    assert kept[1] == [11, 12, 13, 14, 15, 16, 17, 25, 26, 27, 28]
    assert kept[9] == [11, *range(12, 29)]
    assert TensorTopK(0.01, 9).quantize(CompensatedUpdate(update)).indices.tolist() == [28], "no shapes: one tensor"


def test_each_tensor_is_quantized_by_itself_and_small_ones_stay() -> None:
    update = np.array([1, -3, 0.5, 2, 7, 8, 9, 0.1, 0.2, -0.4, 0.3], np.float32)
    context = EncodeContext(shapes=((2, 2), (2,), (1,), (2, 2)))
    quantizer = chain(TopK(0.5), Ternarize())
    found = PerTensor(quantizer, 1).quantize(CompensatedUpdate(update, context=context))
    assert [type(piece).__name__ for piece in found.pieces] == ["Ternary", "Dense", "Ternary"]
    assert np.allclose(found.dense(), [0, -2.5, 0, 2.5, 7, 8, 9, 0, 0, -0.35, 0.35])
    every = PerTensor(quantizer).quantize(CompensatedUpdate(update, context=context)).dense()
    assert np.allclose(every, [0, -2.5, 0, 2.5, 0, 8, 9, 0, 0, -0.35, 0.35])
    whole = PerTensor(quantizer, 1).quantize(CompensatedUpdate(update)).dense()
    assert whole.tobytes() == quantizer.quantize(CompensatedUpdate(update)).dense().tobytes()


def test_the_density_falls_exponentially_over_the_warm_up() -> None:
    stage = ScheduledTopK(TopK(0.001), 4)
    assert [round(stage.density_in(number), 4) for number in range(6)] == [0.2512, 0.0631, 0.0158, 0.004, 0.001, 0.001]
    assert stage.density_in(None) == 0.001
    update = gaussian(10_000)
    sizes = [
        stage.quantize(CompensatedUpdate(update, context=EncodeContext(round=number))).indices.size
        for number in (0, 1, 2, 3, 4, None)
    ]
    assert sizes == [2512, 631, 159, 40, 10, 10]


def test_four_epochs_of_a_hundred_rounds_have_the_four_densities_of_the_paper() -> None:
    stage = ScheduledTopK(TensorTopK(0.001), 400, 4)
    densities = [stage.density_in(number) for number in range(401)]
    assert [round(100 * density, 1) for density in densities[50::100]] == [25.1, 6.3, 1.6, 0.4]
    assert all(len(set(densities[start : start + 100])) == 1 for start in range(0, 400, 100))
    assert densities[400] == 0.001
    assert ScheduledTopK(TopK(0.001), 400).density_in(0) > 0.98, "without steps, every round has a density of its own"
    assert [ScheduledTopK(TopK(0.1), 7, 7).density_in(t) for t in range(8)] == [
        ScheduledTopK(TopK(0.1), 7).density_in(t) for t in range(8)
    ]


def test_the_seed_draws_the_entries_and_the_others_are_not_sent() -> None:
    update = gaussian(1000)
    one, same, other = (
        SeededSubset(0.1, False).quantize(CompensatedUpdate(update, context=EncodeContext(seed))) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.indices, same.indices)
    assert not np.array_equal(one.indices, other.indices)
    assert np.array_equal(one.values, update[one.indices])
    assert np.count_nonzero(one.dense()) == one.indices.size == 100


def test_without_error_feedback_rand_k_is_unbiased() -> None:
    update, copies = gaussian(60), 2000
    found = SeededSubset(0.25, True).quantize(CompensatedUpdate(np.tile(update, copies))).dense()
    # an entry is 4 v with probability 1/4: its standard deviation is v sqrt(3)
    error = np.abs(found.reshape(copies, -1).mean(axis=0) - update) / (np.abs(update) * np.sqrt(3 / copies))
    assert error.max() < 4


def test_scaling_stays_within_float32() -> None:
    update = np.full(100, 3e38, np.float32)
    assert np.abs(SeededSubset(0.01, True).quantize(CompensatedUpdate(update)).values).tolist() == [
        np.float32(MAX_FLOAT32)
    ]


def test_a_format_rounds_the_kept_entries_and_drops_those_that_become_zero() -> None:
    update = np.array([1.0009765625 + 2**-13, -(2**-30), 3, 0.1], np.float32)
    assert RoundValues(TopK(1), "fp32").quantize(CompensatedUpdate(update)).values.tolist() == update.tolist()
    assert RoundValues(TopK(1), "bf16").quantize(CompensatedUpdate(update)).values.tolist() == [
        1,
        -(2**-30),
        3,
        0.10009765625,
    ]
    half = RoundValues(TopK(1), "fp16").quantize(CompensatedUpdate(update))
    assert half.values[0] == 1.0009765625
    wide = RoundValues(TopK(1), "fp16").quantize(CompensatedUpdate(np.array([1, 1e-30], np.float32)))
    assert wide.indices.tolist() == [0], "30 powers of ten below the largest is nothing in float16"


def test_natural_values_are_neighbouring_powers_of_two_and_unbiased() -> None:
    update, copies = np.array([1.25, -3.0, 0.75, 4.0], np.float32), 4000
    found = (
        RoundValues(TopK(1), "natural").quantize(CompensatedUpdate(np.tile(update, copies))).values.reshape(copies, 4)
    )
    assert [set(column.tolist()) for column in found.T] == [{1, 2}, {-2, -4}, {0.5, 1}, {4}]
    spread = np.array([np.sqrt(0.25 * 0.75), 1.0, 0.25, 1e-12])
    assert (np.abs(found.mean(axis=0) - update) < 4 * spread / np.sqrt(copies)).all()


def test_the_largest_scores_are_chosen_and_ties_go_to_the_lower_index() -> None:
    assert largest(np.array([3, 1, 3, 2, 3]), 2).tolist() == [True, False, True, False, False]
    assert largest(np.array([3.0, 1]), 5).tolist() == [True, True]
