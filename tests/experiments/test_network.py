"""Time over a network is bytes over the rate, two round trips a round, and the measured computing time."""

import math

import numpy as np
import pytest

from benchmarks.netshape.profiles import Profile
from experiments.network import format_duration, network_seconds
from tests.experiments.rows import cell, rows

LINK = Profile("a link", up_mbit_s=1, down_mbit_s=8, round_trip_ms=100, source="made up")


def test_a_round_is_two_round_trips_both_transfers_and_the_computing() -> None:
    curve = rows(3).assign(
        round=[0, 1, 2],
        slowest_uplink_bytes=[0, 125_000, 250_000],  # 1 Mbit: a second each
        slowest_downlink_bytes=[0, 1_000_000, 3_000_000],  # 8 Mbit: a second, then two
        client_seconds=[0.0, 10.0, 20.0],
        server_seconds=[0.0, 0.25, 0.5],
    )
    np.testing.assert_allclose(network_seconds(curve, LINK), [0, 0.2 + 1 + 1 + 10 + 0.25, 0.4 + 2 + 3 + 20 + 0.5])
    np.testing.assert_allclose(
        network_seconds(curve, LINK, slowdown=3), [0, 0.2 + 1 + 1 + 30 + 0.25, 0.4 + 2 + 3 + 60 + 0.5]
    )


def test_a_faster_link_never_takes_longer_and_time_never_decreases() -> None:
    rng = np.random.default_rng(3)
    columns = ("round", "slowest_uplink_bytes", "slowest_downlink_bytes", "client_seconds", "server_seconds")
    curve = {name: np.cumsum(rng.integers(0, 10**6, 40)) for name in columns}
    slow = network_seconds(curve, LINK)
    fast = network_seconds(curve, Profile("faster", 2, 9, 90, "made up"))
    assert (fast <= slow).all()
    assert (np.diff(slow) >= 0).all()


@pytest.mark.parametrize("slowdown", [0, -1, math.nan])
def test_a_slowdown_that_is_not_above_0_is_refused(slowdown: float) -> None:
    with pytest.raises(ValueError, match="slowdown"):
        network_seconds(cell([0.1]), LINK, slowdown)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0.0123, "0.012 s"),
        (9.9, "9.9 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (12_240, "3.4 h"),
        (200_000, "2.3 days"),
        (400 * 86_400, "1.1 years"),
        (1e12, "31688 years"),
    ],
)
def test_a_duration_is_shown_in_one_unit(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text
