"""The quasi-global momentum, by hand and for several steps."""

from typing import Any

import numpy as np
import pytest

from fedcomp.gossip import quasi_global_momentum
from fedcomp.wire import BFLOAT16

BEFORE = {"w": np.array([1, 2], np.float32), "steps": np.array(3)}
AFTER = {"w": np.array([0.5, 4], np.float32), "steps": np.array(9)}


def test_the_textbook_case() -> None:
    """0.8 m + 0.2 (1 - 0.5, 2 - 4) / 0.1 = 0.8 m + (1, -4); the next m is that of the first."""
    first = quasi_global_momentum({}, BEFORE, AFTER, decay=0.8, learning_rate=0.1)
    assert list(first) == ["w"]
    assert first["w"].dtype == np.float32
    np.testing.assert_allclose(first["w"], [1, -4], rtol=1e-6)
    second = quasi_global_momentum(first, BEFORE, AFTER, decay=0.8, learning_rate=0.1, steps=2)
    np.testing.assert_allclose(second["w"], [0.8 + 0.5, -3.2 - 2], rtol=1e-6)


def test_complex_tensors_have_momentum_and_bfloat16_is_refused() -> None:
    before, after = {"w": np.array([1 + 2j], np.complex64)}, {"w": np.array([0.5 + 4j], np.complex64)}
    found = quasi_global_momentum({}, before, after, decay=0.8, learning_rate=0.1)
    np.testing.assert_allclose(found["w"], [1 - 4j], rtol=1e-6)
    words = {"w": np.zeros(1, BFLOAT16)}
    with pytest.raises(ValueError, match="'w' is of words such as bfloat16's"):
        quasi_global_momentum({}, words, words, decay=0.8, learning_rate=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 1, "learning_rate": 0.1}, "decay is 1"),
        ({"decay": -0.1, "learning_rate": 0.1}, "decay is -0.1"),
        ({"decay": 0.9, "learning_rate": 0}, "learning_rate is 0"),
        ({"decay": 0.9, "learning_rate": 0.1, "steps": 0}, "steps is 0"),
        ({"decay": 0.9, "learning_rate": 0.1, "steps": 1.5}, "steps is 1.5"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quasi_global_momentum({}, BEFORE, AFTER, **settings)
