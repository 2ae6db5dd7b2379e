"""The pauses that follow where the nodes ask again and again for what is unpublished."""

from itertools import pairwise

import numpy as np
import pytest

from fedcomp.flower.server.links.repetition import FIRST_PAUSE, Repetition


def test_by_hand() -> None:
    repetition = Repetition()
    repetition.add(3, 1)
    assert repetition.times == pytest.approx(0.9)
    repetition.add(-1, 2)
    assert repetition.times == pytest.approx(0.7 * 0.9 - 0.3)
    assert not repetition.pauses(3)


def test_what_is_asked_for_in_each_round_leads_to_a_pause() -> None:
    """Of a change that nobody publishes, the sum holds one more in each round: the average of 0 to 5 is above 3."""
    repetition, number = Repetition(), 0
    while not repetition.pause:
        repetition.add(number, number + 1)
        number += 1
    assert number == 6
    assert [repetition.pauses(each) for each in (6, 7, 6 + FIRST_PAUSE)] == [True] * 3
    assert not repetition.pauses(7 + FIRST_PAUSE)
    assert repetition.times == 0
    repetition.check()


@pytest.mark.parametrize(
    ("mean", "spread"), [(0, 1), (1, 0.3), (-20, 5), (2.3, 0.2)], ids=["chance", "once", "undone", "CNN on IID data"]
)
def test_what_is_asked_for_seldom_or_by_chance_leads_to_no_pause(mean: float, spread: float) -> None:
    repetition = Repetition()
    for number, times in enumerate(np.random.default_rng(0).normal(mean, spread, 300)):
        repetition.add(float(times), number)
    assert not repetition.pause


def test_each_pause_is_twice_as_long_and_nothing_counts_in_it() -> None:
    repetition, begins = Repetition(), list[int]()
    for number in range(1, 901):
        before = repetition.until
        repetition.add(20, number)
        if repetition.until != before:
            begins.append(number)
    assert len(begins) > 4
    assert [later - earlier - 1 for earlier, later in pairwise(begins)] == [
        FIRST_PAUSE << count for count in range(len(begins) - 1)
    ]
