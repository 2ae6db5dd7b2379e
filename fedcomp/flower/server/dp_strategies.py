"""Flower's strategies of differential privacy: they belong inside `CompressedStrategy`, and bound what is sent."""

from collections.abc import Iterable
from logging import INFO, WARNING

import numpy as np
from flwr.app import Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fedcomp.compressor import Compressor
from fedcomp.flower.compat import callers, log, nested_strategies
from fedcomp.flower.records import Contents

CLIENT_SIDE = (DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyClientSideAdaptiveClipping)
SERVER_SIDE = (DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyServerSideAdaptiveClipping)
PROBE_NORM = 2.0**-20
"""The norm of a test vector that every uplink under client-side clipping must be able to send."""


def check_bound(inner: Strategy, uplink: Compressor) -> None:
    """Raise `ValueError` for an `uplink` that no clipping norm bounds, if `inner`, or one inside it, clips on the client."""
    for _, strategy in nested_strategies(inner):
        if not isinstance(strategy, CLIENT_SIDE):
            continue
        probe = np.linspace(-1, 1, 16, dtype=np.float32)
        try:
            uplink.encode(probe, uplink.init(probe.size), max_norm=PROBE_NORM)
        except ValueError as error:
            raise ValueError(
                f"uplink {uplink} cannot keep within the clipping norm of {type(strategy).__name__}: {error}; "
                "choose a method without a fixed step"
            ) from None


def check_order(strategy: Strategy) -> None:
    """Raise `ValueError` if one of these strategies around `strategy` is calling it: it would clip frames, not updates."""
    for caller in callers(CLIENT_SIDE + SERVER_SIDE):
        if any(inside is strategy for _, inside in nested_strategies(caller)):
            name, own = type(caller).__name__, type(strategy).__name__
            raise ValueError(f"{name}({own}(...)) would clip compressed frames; swap them: {own}({name}(...))")


def sent_clipping_norm(messages: Iterable[Message]) -> float | None:
    """Return the largest clipping norm in the configs of `messages`; None if there is none."""
    norms = [norm for message in messages if (norm := Contents.of(message.content).clipping_norm) is not None]
    return max(norms, default=None)


def log_clipping_norm(inner: Strategy, norm: float) -> None:
    """Log that `norm` bounds each update; warn if no strategy in `inner` has asked for it, so that it may mean gradients."""
    if any(isinstance(strategy, CLIENT_SIDE) for _, strategy in nested_strategies(inner)):
        log(INFO, "fedcomp: clipping_norm %g is in the config: each node's decoded update has at most that norm", norm)
    else:
        text = (
            "fedcomp: clipping_norm %g is in the config, without a strategy of Flower's that clips on the client: each node's "
            "whole update is scaled down to that norm; for ordinary gradient clipping, use another key"
        )
        log(WARNING, text, norm)
