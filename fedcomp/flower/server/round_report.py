"""The log lines about compression: the ratio of the first round, and a warning if hardly anything is gained."""

from logging import INFO, WARNING

from fedcomp.compressor import Compressor
from fedcomp.flower._compat import log
from fedcomp.sync import Traffic

MIN_USEFUL_RATIO = 1.5
"""The uplink ratio below which the log warns."""


class RoundReport:
    """Logs the ratio of the first round that brought updates, once."""

    def __init__(self) -> None:
        """Start with nothing logged."""
        self._done = False

    def __call__(self, server_round: int, traffic: Traffic, uplink: Compressor) -> None:
        """Log the traffic of a round, unless one was logged before or no node trained."""
        if self._done or not traffic.dense_uplink_bytes:
            return
        self._done = True
        ratio = traffic.dense_uplink_bytes / traffic.uplink_bytes
        log(
            INFO,
            "fedcomp: round %d: uplink %d bytes, %.1f times smaller than dense; downlink %d bytes, of dense %d",
            server_round,
            traffic.uplink_bytes,
            ratio,
            traffic.downlink_bytes,
            traffic.dense_downlink_bytes,
        )
        if ratio < MIN_USEFUL_RATIO and uplink.name != "dense":
            log(WARNING, "fedcomp: uplink %s hardly compresses this model: ratio %.2f", uplink, ratio)
