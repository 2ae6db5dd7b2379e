"""Error feedback that forgets."""

import numpy as np
import pytest

from fedcomp.memory.decayed_feedback import DecayedFeedback
from fedcomp.quantized.vectors import Dense, Sparse


def test_the_error_shrinks_before_the_update_is_added() -> None:
    memory = DecayedFeedback(0.5)
    asked = memory.compensate(np.array([1, 1], np.float32), {"decayed": np.array([4, -8], np.float32)})
    assert asked.dense().tolist() == [3, -3]
    assert memory.update(asked, Dense(np.array([3, 0], np.float32)))["decayed"].tolist() == [0, -3]


def test_what_is_never_sent_fades() -> None:
    memory = DecayedFeedback(0.5)
    state = {"decayed": np.array([1024], np.float32)}
    nothing = Sparse(1, np.empty(0, np.int64), np.empty(0, np.float32))
    for _ in range(10):
        state = memory.update(memory.compensate(np.zeros(1, np.float32), state), nothing)
    assert state["decayed"].tolist() == [1]


def test_what_was_lost_comes_back_and_stays_within_float32() -> None:
    lost = Dense(np.array([1, 3e38], np.float32))
    state = DecayedFeedback(0.5).rollback(lost, {"decayed": np.array([2, 3e38], np.float32)})
    assert state["decayed"].tolist() == [3, np.finfo(np.float32).max]


@pytest.mark.parametrize("decay", [-0.1, 1.01, True, None])
def test_a_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay is .*; it is a number, at least 0 and at most 1"):
        DecayedFeedback(decay)
