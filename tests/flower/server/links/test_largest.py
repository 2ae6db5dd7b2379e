"""How much of a change is in its largest entries, with and without noise."""

import numpy as np
import pytest

from fedcomp.flower.server.links.largest import GAUSSIAN, largest_share

RNG = np.random.default_rng(0)
NORMAL = RNG.standard_normal(100_000, np.float32)


def test_of_gaussian_entries_it_is_the_known_share() -> None:
    assert largest_share(NORMAL, 0.0, NORMAL.size) == pytest.approx(GAUSSIAN, rel=0.02)
    assert largest_share(1e-9 * NORMAL, 0.0, NORMAL.size) == pytest.approx(GAUSSIAN, rel=0.02), "in any unit"
    assert largest_share(np.sign(NORMAL), 0.0, NORMAL.size) == pytest.approx(0.01)


def test_by_hand() -> None:
    change = np.ones(1000, np.float32)
    change[:10] = -3
    assert largest_share(change, 0.0, 1000) == pytest.approx(90 / 1080)


def test_entries_that_do_not_learn_count_neither_way() -> None:
    frozen = np.concatenate([NORMAL, np.zeros(900_000, np.float32)])
    assert largest_share(frozen, 0.0, NORMAL.size) == largest_share(NORMAL, 0.0, NORMAL.size)


@pytest.mark.parametrize("part", [0.1, 0.3, 0.45])
def test_noise_that_spreads_evenly_is_taken_off(part: float) -> None:
    heavy = NORMAL**3 / np.float32(15**0.5)
    noise = RNG.standard_normal(heavy.size, np.float32) * np.float32((part / (1 - part)) ** 0.5)
    exact = largest_share(heavy, 0.0, heavy.size)
    assert exact > 0.4
    assert largest_share(heavy + noise, part / (1 - part) * heavy.size, heavy.size) == pytest.approx(exact, rel=0.1)
    assert largest_share(NORMAL + noise, part / (1 - part) * heavy.size, heavy.size) == pytest.approx(GAUSSIAN, rel=0.1)


def test_more_entries_than_there_are_count_as_all() -> None:
    assert largest_share(NORMAL, 0.0, 2**63 - 1) == largest_share(NORMAL, 0.0, NORMAL.size)


def test_it_is_unknown_for_few_entries_much_noise_or_no_change() -> None:
    assert largest_share(NORMAL[:900], 0.0, 900) == 0
    assert largest_share(NORMAL, 0.6 * NORMAL.size, NORMAL.size) == 0
    assert largest_share(np.zeros(5000, np.float32), 0.0, 5000) == 0
