"""EF21: the estimate that sender and receiver share."""

import numpy as np
import pytest
import torch

from fedcomp.core import EncodeContext
from fedcomp.memory import Ef21
from fedcomp.quantize import Identity, TopK
from fedcomp.quantized import Dense


def test_the_first_update_is_the_average_and_later_ones_are_weighted_by_the_momentum() -> None:
    memory = Ef21(0.25)
    state = memory.init(2)
    compensated = memory.compensate(np.array([4, 8], np.float32), state)
    assert compensated.dense().tolist() == [4, 8]
    state = memory.update(compensated, Dense(np.array([4, 0], np.float32)), state)
    assert state["estimate"].tolist() == [4, 0]
    compensated = memory.compensate(np.array([0, 0], np.float32), state)
    assert compensated.dense().tolist() == [3 - 4, 6 - 0]
    state = memory.update(compensated, Dense(np.array([0, 6], np.float32)), state)
    assert (state["estimate"].tolist(), state["averaged_update"].tolist()) == ([4, 6], [3, 6])
    assert state["averaged_rounds"].tolist() == [2]


def test_a_state_of_another_epoch_counts_for_nothing() -> None:
    memory, rng = Ef21(0.25), np.random.default_rng(5)
    state, first, second = memory.init(50), *rng.standard_normal((2, 50), np.float32)
    compensated = memory.compensate(first, state, EncodeContext(estimate_epoch=3))
    state = memory.update(compensated, TopK(0.1).quantize(compensated), state)
    assert not memory.begins(state, 3)
    assert memory.begins(state, 4)
    compensated = memory.compensate(second, state, EncodeContext(estimate_epoch=4))
    assert compensated.dense().tolist() == second.tolist(), "the average is the first update, and the estimate is zero"
    state = memory.update(compensated, Identity().quantize(compensated), state)
    assert state["estimate"].tolist() == second.tolist()
    assert state["averaged_rounds"].tolist() == [1]
    assert not memory.begins(state, 4)


def test_without_compression_and_with_momentum_1_the_estimate_is_each_update() -> None:
    memory, rng = Ef21(1.0), np.random.default_rng(0)
    state, received = memory.init(300), np.zeros(300)
    for _ in range(10):
        update = rng.standard_normal(300, np.float32)
        compensated = memory.compensate(update, state)
        dense = Identity().quantize(compensated)
        state = memory.update(compensated, dense, state)
        received += dense.dense()
        assert np.allclose(received, update, atol=1e-5)


def test_the_estimate_of_a_constant_update_converges_to_it() -> None:
    memory, update = Ef21(0.1), np.random.default_rng(1).standard_normal(300, np.float32)
    state, distance = memory.init(300), [np.inf]
    for _ in range(40):
        compensated = memory.compensate(update, state)
        state = memory.update(compensated, TopK(0.1).quantize(compensated), state)
        distance.append(float(np.linalg.norm(state["estimate"] - update)))
        assert distance[-1] <= distance[-2] + 1e-4
    assert distance[10] < 1e-4, "ten messages of a tenth of the entries"


def test_an_update_read_in_place_one_too_large_for_that_and_a_tensor_agree() -> None:
    memory, rng = Ef21(0.1), np.random.default_rng(2)
    states = [memory.init(100) for _ in range(3)]
    for _ in range(5):
        update = rng.standard_normal(100, np.float32)
        for place, given in enumerate((update, torch.from_numpy(update), update * np.float32(2**70))):
            compensated = memory.compensate(given, states[place])
            states[place] = memory.update(compensated, TopK(0.2).quantize(compensated), states[place])
    assert np.allclose(states[0]["estimate"], np.asarray(states[1]["estimate"]), atol=1e-6)
    assert np.allclose(states[0]["estimate"], states[2]["estimate"] / np.float32(2**70), atol=1e-6)


def test_a_lost_message_is_taken_out_of_the_estimate() -> None:
    memory = Ef21(0.1)
    state = memory.init(2) | {"estimate": np.array([3, 5], np.float32)}
    assert memory.rollback(Dense(np.array([1, 2], np.float32)), state)["estimate"].tolist() == [2, 3]


@pytest.mark.parametrize("momentum", [0, 1.5, True, "0.1", float("nan")])
def test_a_momentum_out_of_range_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum is .* above 0 and at most 1"):
        Ef21(momentum)


def test_after_a_lost_first_message_the_next_one_is_the_first() -> None:
    memory, epoch = Ef21(0.25), EncodeContext(estimate_epoch=3)
    state = memory.init(2)
    for update in ([4, 8], [1, 2]):
        compensated = memory.compensate(np.array(update, np.float32), state, epoch)
        assert compensated.dense().tolist() == update, "an average with the lost update would differ"
        sent = Dense(np.array([3, 0], np.float32))
        state = memory.rollback(sent, memory.update(compensated, sent, state))
        assert memory.begins(state, 3)
        assert not state["estimate"].any()
