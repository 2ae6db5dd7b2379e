"""A sender that remembers nothing."""

import numpy as np

from fedcomp.memory import NoMemory
from fedcomp.quantized import Dense


def test_nothing_is_added_kept_or_rolled_back() -> None:
    memory, update = NoMemory(), np.ones(3, np.float32)
    assert memory.init(3) == {}
    compensated = memory.compensate(update, {})
    assert compensated.dense().tolist() == [1, 1, 1]
    assert memory.update(compensated, Dense(update), {}) == {}
    assert memory.rollback(Dense(update), {}) == {}
