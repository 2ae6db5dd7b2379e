"""The time that measured bytes and measured compute would take over a known network.

The model is as simple as it can honestly be. Rounds are synchronous: each waits for its slowest node. Each node has its own
link, the server's is never the bottleneck, and nothing is lost or sent twice. A round takes two round trips (a node fetches
its message and delivers its reply), the transfers of the busiest node, and the measured computing time.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from benchmarks.netshape.profiles import Profile

ROUND_TRIPS = 2
"""Round trips of one round: a node fetches its message, and delivers its reply."""


def network_seconds(
    table: Mapping[str, ArrayLike] | pd.DataFrame, profile: Profile, slowdown: float = 1.0
) -> NDArray[np.float64]:
    """Return the seconds that a run would have taken over this network by each row: float64 (rows,).

    `table` has the columns of `results.COLUMNS`. A node computes `slowdown` times slower than the study's machine; the
    server is as fast as measured. Raises `ValueError` unless `slowdown` is above 0 and finite.
    """
    if not 0 < slowdown < math.inf:
        raise ValueError(f"slowdown is {slowdown}; a finite number above 0 is needed")

    def column(name: str) -> NDArray[np.float64]:
        return np.asarray(table[name], np.float64)

    waiting = column("round") * ROUND_TRIPS * profile.round_trip_ms / 1e3
    down = column("slowest_downlink_bytes") * 8 / (profile.down_mbit_s * 1e6)
    up = column("slowest_uplink_bytes") * 8 / (profile.up_mbit_s * 1e6)
    return waiting + down + up + column("client_seconds") * slowdown + column("server_seconds")


def format_duration(duration_s: float) -> str:
    """Return a duration in one unit with two or three digits, as in 3.4 h."""
    for size, unit in ((86400 * 365.25, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if duration_s >= size:
            value = duration_s / size
            return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"
    return f"{duration_s:.2g} s" if duration_s < 9.95 else f"{duration_s:.0f} s"
