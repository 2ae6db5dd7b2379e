"""The networks that trials and reports know."""

import math

import pytest

from benchmarks.netshape.profiles import BY_WORD, PROFILES, Profile


def test_the_profiles_are_those_of_webpagetest_and_one_of_ethernet() -> None:
    rates = {one.name: (one.up_mbit_s, one.down_mbit_s, one.round_trip_ms) for one in PROFILES}
    assert rates == {
        "3G": (0.768, 1.6, 300),
        "home DSL": (0.384, 1.5, 50),
        "LTE": (12, 12, 70),
        "1 Gb/s": (1000, 1000, 1),
    }
    assert all(one.source for one in PROFILES)


def test_a_command_line_has_a_word_for_each() -> None:
    assert {word: profile.name for word, profile in BY_WORD.items()} == {
        "3g": "3G",
        "dsl": "home DSL",
        "lte": "LTE",
        "gigabit": "1 Gb/s",
    }


@pytest.mark.parametrize(("up", "down", "latency"), [(0, 1, 1), (1, -1, 1), (1, 1, -1), (math.nan, 1, 1)])
def test_a_link_that_cannot_be_is_refused(up: float, down: float, latency: float) -> None:
    with pytest.raises(ValueError, match="rates above 0"):
        Profile("none", up, down, latency, "made up")
