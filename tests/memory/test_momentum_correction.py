"""DGC's momentum correction: momentum SGD, masking, skipped rounds, clipping and the end of float32."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from fedcomp.core import EncodeContext, Vector
from fedcomp.memory import MomentumCorrection, State
from fedcomp.quantize import TopK
from fedcomp.quantized import Dense, Sparse


def send(memory: MomentumCorrection, update: Any, state: State, density: float, server_round: int | None = None) -> Any:
    """Return what top-k sends of the update, and the state after it."""
    compensated = memory.compensate(update, state, EncodeContext(round=server_round))
    sparse = TopK(density).quantize(compensated)
    return sparse, memory.update(compensated, sparse, state)


def updates(count: int, n: int = 500) -> list[Vector]:
    return list(np.random.default_rng(7).standard_normal((count, n), np.float32))


@pytest.mark.parametrize("nesterov", [False, True])
def test_with_every_entry_sent_and_no_masking_it_is_momentum_sgd(nesterov: bool) -> None:
    memory, velocity = MomentumCorrection(0.9, masking=False, nesterov=nesterov), np.zeros(500)
    state = memory.init(500)
    for g in updates(12):
        sparse, state = send(memory, g, state, 1.0)
        velocity = 0.9 * (velocity + g) if nesterov else 0.9 * velocity + g
        step = velocity + g if nesterov else velocity
        assert np.allclose(sparse.dense(), step, atol=1e-5)
        assert not state["unsent_velocity"].any(), "everything was sent"


def test_with_masking_the_velocity_of_a_sent_entry_starts_from_zero() -> None:
    memory = MomentumCorrection(0.5)
    state = memory.init(3)
    sparse, state = send(memory, np.array([4, 1, 2], np.float32), state, 1 / 3)
    assert (sparse.indices.tolist(), sparse.values.tolist()) == ([0], [4])
    assert state["velocity"].tolist() == [0, 1, 2]
    assert state["unsent_velocity"].tolist() == [0, 1, 2]
    sparse, state = send(memory, np.array([1, 1, 1], np.float32), state, 1 / 3)
    assert (sparse.indices.tolist(), sparse.values.tolist()) == ([2], [2 + 0.5 * 2 + 1])
    assert state["velocity"].tolist() == [1, 1.5, 0]
    assert state["unsent_velocity"].tolist() == [1, 2.5, 0]


def test_the_sum_of_all_velocities_is_sent_or_kept() -> None:
    memory = MomentumCorrection(0.9)
    state, received, total = memory.init(500), np.zeros(500), np.zeros(500)
    for g in updates(30):
        velocity = 0.9 * state["velocity"].astype(np.float64) + g
        sparse, state = send(memory, g, state, 0.05)
        total += velocity
        received += sparse.dense()
        assert np.allclose(received + state["unsent_velocity"], total, atol=1e-4)


def test_skipped_rounds_shrink_the_velocity_as_updates_of_zero_do() -> None:
    memory = MomentumCorrection(0.5)
    state = memory.init(2)
    _, state = send(memory, np.array([8, 4], np.float32), state, 0.5, 10)
    _, late = send(memory, np.zeros(2, np.float32), copy.deepcopy(state), 0.5, 13)
    _, prompt = send(memory, np.zeros(2, np.float32), state, 1e-9, 11)
    assert late["unsent_velocity"].tolist() == [0, 0]  # 4 + 0.5 ** 3 * 4, sent
    assert late["velocity_round"].tolist() == [13]
    assert prompt["velocity_round"].tolist() == [11]
    sparse, _ = send(
        memory,
        np.zeros(2, np.float32),
        {**memory.init(2), "velocity": np.array([0, 4], np.float32), "velocity_round": np.array([10])},
        0.5,
        13,
    )
    assert sparse.values.tolist() == [0.5**3 * 4]


def test_the_norm_of_the_update_is_clipped_to_the_share_of_one_node() -> None:
    memory = MomentumCorrection(0.9, clip=6.0, nodes=4)
    sparse, _ = send(memory, np.array([3, 4], np.float32), memory.init(2), 1.0)
    assert sparse.values.tolist() == pytest.approx([3 * 3 / 5, 3 * 4 / 5])
    sparse, _ = send(memory, np.array([0.3, 0.4], np.float32), memory.init(2), 1.0)
    assert sparse.values.tolist() == pytest.approx([0.3, 0.4])


def test_an_update_read_in_place_one_too_large_for_that_and_a_tensor_agree() -> None:
    memory = MomentumCorrection(0.9, nesterov=True)
    states = [memory.init(500) for _ in range(3)]
    for g in updates(5):
        sparse, states[0] = send(memory, g, states[0], 0.05)
        large, states[1] = send(memory, g * np.float32(2**70), states[1], 0.05)
        tensor, states[2] = send(memory, torch.from_numpy(g), states[2], 0.05)
        assert np.array_equal(sparse.indices, large.indices)
        assert np.allclose(sparse.values, large.values / np.float32(2**70), rtol=1e-6)
        assert np.array_equal(sparse.values, tensor.values)
    for name in ("velocity", "unsent_velocity"):
        assert np.allclose(states[0][name], states[1][name] / np.float32(2**70), rtol=1e-5, atol=1e-6)
        assert np.array_equal(states[0][name], np.asarray(states[2][name]))


def test_updates_at_the_end_of_float32_leave_a_finite_state() -> None:
    memory, largest = MomentumCorrection(0.9, nesterov=True), np.float32(3.4e38)
    for backend in (np.asarray, torch.from_numpy):
        state = memory.init(3)
        for value in (-largest, largest, largest, -largest):
            _, state = send(memory, backend(np.full(3, value, np.float32)), state, 0.3)
            velocity, unsent = np.asarray(state["velocity"]), np.asarray(state["unsent_velocity"])
            assert np.isfinite(velocity).all()
            assert np.isfinite(unsent).all()


@pytest.mark.parametrize("backend", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("selection", [None, TopK(0.1)])
def test_a_lost_message_leaves_the_velocities_of_one_that_sent_nothing(backend: Any, selection: TopK | None) -> None:
    memory = MomentumCorrection(0.9, selection=selection)
    state = memory.init(500)
    for g in updates(5):
        _, state = send(memory, backend(g), state, 0.1)
    (g,) = updates(1)
    sparse, sent = send(memory, backend(g), copy.deepcopy(state), 0.1)
    assert not np.asarray(sent["velocity"])[sparse.indices].any(), "they are masked"
    lost = memory.rollback(sparse, sent)
    compensated = memory.compensate(backend(g), state)
    expected = memory.update(compensated, Sparse(500, np.empty(0, np.int64), g[:0]), state)
    np.testing.assert_allclose(np.asarray(lost["unsent_velocity"]), np.asarray(expected["unsent_velocity"]), atol=1e-5)
    np.testing.assert_array_equal(np.asarray(lost["velocity"]), np.asarray(expected["velocity"]))
    assert lost["masked_at"].size == 0, "a second loss restores nothing"


def test_what_is_sent_whole_keeps_its_velocity() -> None:
    memory = MomentumCorrection(0.9, selection=TopK(1.0))
    state = memory.init(3)
    for number, g in enumerate(np.ones((5, 3), np.float32)):
        sparse, state = send(memory, g, state, 1.0, number)
        assert sparse.values.tolist() == pytest.approx([sum(0.9**age for age in range(number + 1))] * 3)


def test_a_vector_that_is_not_sparse_masks_nothing() -> None:
    memory = MomentumCorrection(0.5)
    state = memory.init(2)
    for expected in (4.0, 6.0, 7.0):
        compensated = memory.compensate(np.full(2, 4, np.float32), state)
        dense = Dense(compensated.dense())
        assert dense.vector.tolist() == [expected] * 2
        state = memory.update(compensated, dense, state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"momentum": 0.9, "clip": -1}, "clip is -1"),
        ({"momentum": 0.9, "nodes": 0}, "nodes is 0"),
        ({"momentum": 0.9, "masking": 1}, "masking is 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MomentumCorrection(**settings)
