"""Logs that a bound of the density keeps `balanced()` from the balance that it names."""

import math
from logging import INFO, WARNING

from fedcomp.compressor import Compressor
from fedcomp.flower.compat import log
from fedcomp.methods import MIN_SHARE

TOLERANCE = 1.1
"""A balance that is missed by less than this factor is not worth a line."""
MIN_VERSIONS = 10


class BalanceLog:
    """Logs when the share of the named density has been at one of its bounds for long; once each time that it gets there."""

    def __init__(self) -> None:
        self._bound, self._versions = 0.0, 0

    def watch(
        self,
        server_round: int,
        downlink: Compressor,
        share: float,
        balance: float,
        *,
        fetched: float,
        sent: float,
        participation: float,
    ) -> None:
        """Take the `share` after a version that was sent by `downlink`; the other arguments are those of `toward_balance`.

        Long is twice as many versions as a node misses, since what nodes fetch holds versions of earlier densities.
        """
        ratio = fetched / sent if sent else balance
        binds = (share == MIN_SHARE and ratio > balance * TOLERANCE) or (share == 1 and ratio < balance / TOLERANCE)
        bound = share if binds else 0.0
        self._versions = self._versions + 1 if bound == self._bound else 1
        self._bound = bound
        if not bound or self._versions != max(MIN_VERSIONS, math.ceil(2 / participation)):
            return
        found = f"nodes fetch {ratio:.2f} times what they send, and balanced() is asked for {balance:g}"
        if bound == 1:
            text, level = "the density is the named one, which is the largest", INFO
        else:
            text, level = f"the density is at its least, {MIN_SHARE:g} times the named one; name a smaller one", WARNING
        log(level, "fedcomp: round %d: %s: %s (downlink %s)", server_round, found, text, downlink)
