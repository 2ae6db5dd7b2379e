"""Weighted sums that are read block by block."""

import numpy as np
import pytest
import torch

from fedcomp.core.compensated_update import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate
from fedcomp.core.context import EncodeContext
from fedcomp.core.types import Vector
from fedcomp.errors import NonFiniteError


def vectors(n: int, count: int = 3) -> list[Vector]:
    return list(np.random.default_rng(n).standard_normal((count, n), np.float32))


def whole(value: CompensatedUpdate) -> Vector:
    return np.concatenate([block.copy() for _, block in value.blocks()])


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, 1.0, -2.0), (-1.0, 0.25, 1.0)])
@pytest.mark.parametrize("n", [1, 31, 2 * BLOCK_ENTRIES + 5])
def test_the_weighted_sum_is_the_same_in_every_way_of_reading_it(n: int, weights: tuple[float, ...]) -> None:
    parts = vectors(n)
    expected = parts[0] * np.float32(weights[0])
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        expected = expected + part * np.float32(weight)
    value = CompensatedUpdate(*parts, weights=weights)
    assert np.array_equal(whole(value), expected)
    assert np.array_equal(value.dense(), expected)
    assert np.array_equal(value.sample(0, 1, 1), expected)
    assert np.array_equal(np.concatenate([part.dense() for _, part in value.tensors()]), expected)
    tensors = CompensatedUpdate(*(torch.from_numpy(part) for part in parts), weights=weights)
    assert np.array_equal(whole(tensors), expected)
    settled = CompensatedUpdate(*(part.copy() for part in parts), weights=weights, in_place=True)
    assert np.array_equal(whole(settled), expected)
    assert np.array_equal(settled.parts[0], expected)
    assert np.array_equal(whole(settled), expected), "a second reading gives the same"
    assert np.array_equal(CompensatedUpdate(*parts, weights=weights).settle()[0], expected)


def test_a_reading_in_place_that_stops_early_settles_all_the_same() -> None:
    parts = vectors(3 * BLOCK_ENTRIES, 2)
    expected = parts[0] * np.float32(0.5) + parts[1]
    value = CompensatedUpdate(*parts, weights=(0.5, 1.0), in_place=True)
    for _, _block in value.blocks():
        break
    assert np.array_equal(value.settle()[0], expected)


def test_a_tensor_in_place_is_settled_by_reading_it() -> None:
    parts = vectors(10, 2)
    expected = parts[0] + parts[1]
    value = CompensatedUpdate(*parts, in_place=True, context=EncodeContext(shapes=((2, 3), (0, 7), (), (3,))))
    assert value.sizes == (6, 1, 3)
    assert [(start, part.dense().tolist()) for start, part in value.tensors()] == [
        (0, expected[:6].tolist()),
        (6, expected[6:7].tolist()),
        (7, expected[7:].tolist()),
    ]
    assert np.array_equal(value.settle()[0], expected)


def test_an_entry_that_is_not_finite_is_named_by_its_place_in_the_whole_vector() -> None:
    update = np.zeros(9, np.float32)
    update[7] = np.nan
    value = CompensatedUpdate(np.zeros(9, np.float32), update, context=EncodeContext(shapes=((4,), (5,))))
    (_, first), (_, second) = value.tensors()
    assert not first.dense().any()
    with pytest.raises(NonFiniteError, match="entry 7 is nan"):
        second.dense()


def test_a_bounded_sum_stays_at_the_largest_float32_and_refuses_an_update_that_is_not_finite() -> None:
    memory, update = np.full(3, 3e38, np.float32), np.array([3e38, -3e38, 1], np.float32)
    assert CompensatedUpdate(memory, update, bounded=True).dense().tolist() == [MAX_FLOAT32, 0, np.float32(3e38)]
    with pytest.raises(NonFiniteError):
        CompensatedUpdate(memory, update).dense()
    update[1] = -np.inf
    with pytest.raises(NonFiniteError, match="entry 1 is -inf"):
        CompensatedUpdate(memory, update, bounded=True).dense()
