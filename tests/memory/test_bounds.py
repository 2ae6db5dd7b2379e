"""Memories saturate at the largest float32: an infinity in a state would block its sender for good."""

import numpy as np
import pytest
import torch

from fedcomp.core import MAX_FLOAT32, CompensatedUpdate
from fedcomp.memory import Ef21, LinearFeedback, Memory
from fedcomp.quantize import TopK
from fedcomp.quantized import Dense

HUGE = np.array([3e38, -3e38], np.float32)


@pytest.mark.parametrize("memory", [LinearFeedback(0, 1, "error"), LinearFeedback(1, 1, "error")])
def test_an_error_that_is_never_sent_stays_at_the_largest_float32(memory: Memory) -> None:
    state = memory.init(2)
    for _ in range(3):
        state = memory.update(memory.compensate(HUGE, state), Dense(np.zeros(2, np.float32)), state)
        assert all(np.isfinite(vector).all() for vector in state.values())
    assert [vector.tolist() for vector in state.values()] == [[MAX_FLOAT32, -MAX_FLOAT32]]


def test_an_estimate_stays_within_float32_whatever_is_sent() -> None:
    memory = Ef21(1.0)
    state = memory.init(2)
    for _ in range(3):
        state = memory.update(memory.compensate(HUGE, state), Dense(HUGE), state)
    assert state["estimate"].tolist() == [MAX_FLOAT32, -MAX_FLOAT32]


def test_top_k_of_a_bounded_sum_of_tensors_stays_within_float32() -> None:
    parts = (torch.from_numpy(HUGE), torch.from_numpy(HUGE))
    assert TopK(1.0).quantize(CompensatedUpdate(*parts, bounded=True)).values.tolist() == [MAX_FLOAT32, -MAX_FLOAT32]
