"""Error-compensated quantization."""

import copy

import numpy as np
import pytest

from fedcomp.memory.ecq import Ecq
from fedcomp.memory.error_feedback import ErrorFeedback
from fedcomp.quantize.protocol import chain
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.topk import TopK
from fedcomp.quantized.vectors import Dense

QUANTIZE = chain(TopK(0.1), Ternarize())


def test_a_share_of_the_error_is_added_and_the_raw_updates_error_is_kept() -> None:
    update = np.array([1.0, -2.0], np.float32)
    state = {"accumulated_error": np.array([4.0, 8.0], np.float32)}
    memory = Ecq(alpha=0.25, beta=0.5)
    asked = memory.compensate(update, state)
    assert asked.dense().tolist() == [2, 0]
    after = memory.update(asked, Dense(np.array([1.5, 0.5], np.float32)))
    assert after["accumulated_error"].tolist() == [0.5 * 4 + 1 - 1.5, 0.5 * 8 - 2 - 0.5]


def test_with_alpha_and_beta_1_it_is_error_feedback_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    ecq, feedback = Ecq(1, 1), ErrorFeedback()
    one, other = ecq.init(1000), feedback.init(1000)
    for _ in range(20):
        update = rng.standard_normal(1000, np.float32)
        asked, expected = ecq.compensate(update, one), feedback.compensate(update, other)
        sent, same = QUANTIZE.quantize(asked), QUANTIZE.quantize(expected)
        assert np.array_equal(sent.dense(), same.dense())
        one, other = ecq.update(asked, sent), feedback.update(expected, same)
        assert np.array_equal(one["accumulated_error"], other["residual"])


def test_with_other_settings_it_is_not() -> None:
    update = np.ones(4, np.float32)
    state = {"accumulated_error": np.ones(4, np.float32)}
    memory = Ecq(0.5, 1)
    asked = memory.compensate(update, copy.deepcopy(state))
    kept = memory.update(asked, Dense(np.zeros(4, np.float32)))["accumulated_error"]
    assert kept.tolist() == [2] * 4, "the raw update's error, not the compensated one's"


def test_the_contraction_is_the_papers() -> None:
    assert Ecq(0.2, 0.9).contraction(4.0) == pytest.approx(0.2**2 * 4 + 0.7**2)


@pytest.mark.parametrize(
    ("alpha", "beta", "message"), [(-0.1, 1, "alpha is -0.1; it is"), (1, 1.5, "beta is 1.5; it is")]
)
def test_settings_out_of_range_are_refused(alpha: float, beta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ecq(alpha, beta)


def test_what_was_lost_comes_back() -> None:
    state = {"accumulated_error": np.zeros(3, np.float32)}
    lost = Dense(np.array([1, 2, 3], np.float32))
    assert Ecq(0.2, 0.9).rollback(lost, state)["accumulated_error"].tolist() == [1, 2, 3]
