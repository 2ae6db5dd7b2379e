"""How often the nodes ask again for what is unpublished, and the pauses that follow."""

import numpy as np
import pytest

from fedcomp.flower.server.links.lateness import FIRST_PAUSE, KEPT, TOO_OFTEN, Repetition

RNG = np.random.default_rng(0)
CHANGE = RNG.standard_normal(2_000, np.float32)


def test_by_hand() -> None:
    repetition = Repetition()
    repetition.add(CHANGE, 3 * CHANGE, 1)
    assert repetition.times == pytest.approx(0.9)
    repetition.add(-CHANGE, CHANGE, 2)
    assert repetition.times == pytest.approx(0.7 * 0.9 - 0.3)
    repetition.add(0 * CHANGE, CHANGE, 3)
    assert repetition.times == pytest.approx(0.7 * (0.7 * 0.9 - 0.3))
    assert not repetition.pauses(4, 100)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_a_change_that_is_no_number_asks_for_nothing(odd: float) -> None:
    repetition = Repetition(times=1.0)
    repetition.add(np.where(np.arange(2_000) == 3, np.float32(odd), CHANGE), CHANGE, 1)
    assert repetition.times == pytest.approx(0.7)


def test_what_is_asked_for_in_each_round_leads_to_a_pause() -> None:
    """Of a change that nobody publishes, the sum holds one more in each round."""
    repetition, residual, asked = Repetition(), 0 * CHANGE, 0
    while not repetition.pause:
        asked += 1
        repetition.add(CHANGE, residual, asked)
        residual = residual + CHANGE
    assert asked == 1 + sum(1 for _ in _until_too_often())
    assert repetition.times == 0
    repetition.check()
    assert [repetition.pauses(number, 1000) for number in (asked, asked + 1, asked + FIRST_PAUSE)] == [True] * 3
    assert not repetition.pauses(asked + FIRST_PAUSE + 1, 1000)


def _until_too_often() -> list[float]:
    times, each = [0.0], 0
    while times[-1] <= TOO_OFTEN:
        each += 1
        times.append(KEPT * times[-1] + (1 - KEPT) * each)
    return times[1:]


@pytest.mark.parametrize("residual", [3 * RNG.standard_normal(2_000, np.float32), -20 * CHANGE])
def test_chance_and_what_is_undone_lead_to_none(residual: np.ndarray) -> None:
    repetition = Repetition()
    for number in range(100):
        repetition.add(CHANGE + RNG.standard_normal(2_000, np.float32), residual, number)
    assert not repetition.pause


def test_each_pause_is_twice_as_long_and_a_run_that_has_paused_ends_with_one() -> None:
    repetition, begins = Repetition(), list[int]()
    for number in range(1, 901):
        before = repetition.until
        repetition.add(CHANGE, 5 * CHANGE, number)
        if repetition.until != before:
            begins.append(number)
    lengths = [FIRST_PAUSE << count for count in range(len(begins))]
    assert repetition.pause == lengths[-1]
    assert np.diff(begins).tolist() == [length + 1 for length in lengths[:-1]]
    once = Repetition(pause=FIRST_PAUSE, until=30)
    assert [once.pauses(number, 1000) for number in (30, 31, 900, 901, 1000)] == [True, False, False, True, True]
    assert not Repetition().pauses(1000, 1000)
