"""The weighted sum of a memory and an update: every way of reading it, when memory changes, and the end of float32."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, MAX_TENSORS, CommitRule, CompensatedUpdate, EncodeContext, Vector
from fedcomp.errors import NonFiniteError


def vectors(n: int, count: int = 3) -> list[Vector]:
    return list(np.random.default_rng(n).standard_normal((count, n), np.float32))


def whole(value: CompensatedUpdate) -> Vector:
    return np.concatenate([block.copy() for _, block in value.blocks()])


def test_reading_changes_nothing_and_settling_moves_the_sum_into_the_first_part() -> None:
    memory, update = np.array([1, 2], np.float32), np.array([10, 20], np.float32)
    value = CompensatedUpdate(memory, update, weights=(0.5, 1.0))
    assert value.dense().tolist() == [10.5, 21]
    assert memory.tolist() == [1, 2]
    for _ in range(2):
        value.commit()
        assert (memory.tolist(), update.tolist()) == ([10.5, 21], [10, 20])
        assert value.dense().tolist() == [10.5, 21]


def average(mean: Vector, update: Vector, estimate: Vector) -> Vector:
    mean *= 0.75
    mean += 0.25 * update
    return mean - estimate


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n", [1, 3 * BLOCK_ENTRIES + 5])
def test_a_commit_rule_says_what_memory_becomes_and_how_the_sum_reads_from_then_on(n: int, in_place: bool) -> None:
    mean, update, estimate = vectors(n)
    context = EncodeContext(shapes=((n // 2,), (n - n // 2,)))
    before, after = mean.copy(), np.float32(0.75) * mean + np.float32(0.25) * update
    value = CompensatedUpdate(
        *(mean, update, estimate),
        weights=(0.75, 0.25, -1.0),
        commit_rule=CommitRule(average, (1.0, None, -1.0)),
        in_place=in_place,
        context=context,
    )
    for _ in range(2):
        found = np.concatenate([tensor.dense() for _, tensor in value.tensors()])
        assert np.allclose(found, after - estimate, atol=1e-6)
        assert np.array_equal(mean, after if in_place else before)
    assert value.commit()[0] is mean
    assert np.array_equal(mean, after)
    assert np.array_equal(value.dense(), after - estimate)


def test_a_sum_of_more_tensors_than_a_body_may_describe_is_not_read_in_place() -> None:
    for count, in_place in ((MAX_TENSORS, True), (MAX_TENSORS + 1, False)):
        memory, update = np.ones((2, count), np.float32)
        value = CompensatedUpdate(memory, update, in_place=True, context=EncodeContext(shapes=((1,),) * count))
        assert (value.dense() == 2).all()
        assert (memory == (2 if in_place else 1)).all()


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
    committed = CompensatedUpdate(*(part.copy() for part in parts), weights=weights, in_place=True)
    assert np.array_equal(whole(committed), expected)
    assert np.array_equal(committed.parts[0], expected)
    assert np.array_equal(whole(committed), expected), "a second reading gives the same"
    assert np.array_equal(CompensatedUpdate(*parts, weights=weights).commit()[0], expected)


@pytest.mark.parametrize("read", [CompensatedUpdate.blocks, CompensatedUpdate.tensors])
def test_reading_in_place_commits_everything_once_even_if_the_reader_stops_early(
    read: Callable[..., Iterator[object]],
) -> None:
    n = 3 * BLOCK_ENTRIES
    parts = vectors(n, 2)
    expected = parts[0] * np.float32(0.5) + parts[1]
    shapes = ((9,), (BLOCK_ENTRIES,), (n - 9 - BLOCK_ENTRIES,))
    value = CompensatedUpdate(*parts, weights=(0.5, 1.0), in_place=True, context=EncodeContext(shapes=shapes))
    for _ in read(value):
        break
    assert value.committed
    assert np.array_equal(value.dense(), expected)
    assert np.array_equal(value.commit()[0], expected)


def test_reading_its_tensors_commits_a_sum_in_place() -> None:
    parts = vectors(10, 2)
    expected = parts[0] + parts[1]
    value = CompensatedUpdate(*parts, in_place=True, context=EncodeContext(shapes=((2, 3), (0, 7), (), (3,))))
    assert value.sizes == (6, 1, 3)
    assert [(start, part.dense().tolist()) for start, part in value.tensors()] == [
        (0, expected[:6].tolist()),
        (6, expected[6:7].tolist()),
        (7, expected[7:].tolist()),
    ]
    assert np.array_equal(value.commit()[0], expected)


def test_an_error_in_a_tensor_names_the_entry_by_its_index_in_the_whole_vector() -> None:
    update = np.zeros(9, np.float32)
    update[7] = np.nan
    value = CompensatedUpdate(np.zeros(9, np.float32), update, context=EncodeContext(shapes=((4,), (5,))))
    (_, first), (_, second) = value.tensors()
    assert not first.dense().any()
    with pytest.raises(NonFiniteError, match="entry 7 is nan"):
        second.dense()


def test_a_bounded_sum_saturates_at_the_largest_float32_and_refuses_parts_that_are_not_finite() -> None:
    memory, update = np.full(3, 3e38, np.float32), np.array([3e38, -3e38, 1], np.float32)
    assert CompensatedUpdate(memory, update, bounded=True).dense().tolist() == [MAX_FLOAT32, 0, np.float32(3e38)]
    with pytest.raises(NonFiniteError):
        CompensatedUpdate(memory, update).dense()
    update[1] = -np.inf
    with pytest.raises(NonFiniteError, match="entry 1 is -inf"):
        CompensatedUpdate(memory, update, bounded=True).dense()


def test_a_multiple_of_a_bounded_sum_saturates_too() -> None:
    memory, update = np.full(2, 3e38, np.float32), np.array([3e38, -3e38], np.float32)
    assert CompensatedUpdate(memory, update, bounded=True).scaled(2.0).dense().tolist() == [MAX_FLOAT32, 0]


def test_an_error_in_a_tensor_of_a_tensor_names_the_entry_by_its_index_in_the_whole_vector() -> None:
    update = np.zeros(9, np.float32)
    update[7] = np.nan
    value = CompensatedUpdate(update, context=EncodeContext(shapes=((4,), (5,))))
    (_, outer) = list(value.tensors())[1]
    (_, inner), *_ = outer.tensors()
    with pytest.raises(NonFiniteError, match="entry 7 is nan"):
        inner.dense()
