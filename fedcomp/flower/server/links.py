"""The compressors of a strategy's two links: whether they fit the strategy, and what they gain."""

from collections.abc import Iterable
from logging import INFO, WARNING

import numpy as np
from flwr.app import Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    Strategy,
)

from fedcomp.compressor import Compressor
from fedcomp.flower._compat import log
from fedcomp.flower.privacy import clipping_norm
from fedcomp.flower.server.strategy_state import nested_strategies
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import ReplyUse, reply_use_of
from fedcomp.methods import METHODS, eden
from fedcomp.sync import Ledger
from fedcomp.wire import codec_id

CLIENT_SIDE_CLIPPING = (DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyClientSideAdaptiveClipping)
PROBE_NORM = 2.0**-20
"""The norm of a test vector that every uplink under client-side clipping must be able to send."""
MIN_USEFUL_RATIO = 1.5
"""The uplink ratio below which the log warns."""


def evaluation_uplink(uplink: Compressor) -> Compressor:
    """Return the compressor of models that evaluation returns: lossless if the `uplink` is, otherwise without a memory.

    No later message could make up for an error in such a model.
    """
    return uplink if uplink.name == "dense" else eden(bits=4)


def check_links(inner: Strategy, uplink: Compressor, downlink: Compressor) -> None:
    """Raise `ValueError` for a compressor on a link that it is not made for, and for increments that nobody sums."""
    if not isinstance(inner, Strategy):
        raise ValueError(f"the inner strategy is {inner!r}; an instance of a flwr Strategy is needed")
    for compressor, link in ((uplink, "uplink"), (downlink, "downlink")):
        if not isinstance(compressor, Compressor):
            raise ValueError(f"{compressor!r} is no compressor; fedcomp.parse makes one from text")
        codec_id(compressor.entropy)  # raises for a code without a number
        if compressor.name in METHODS and not getattr(METHODS.about(compressor.name), link):
            raise ValueError(f"{compressor} does not work as {link}; `python -m fedcomp methods` lists those that do")
    sums = reply_use_of(inner) is ReplyUse.INCREMENTS
    if uplink.memory.incremental != sums:
        sends, needs = ("whole updates", "increments") if sums else ("increments of an estimate", "whole updates")
        raise ValueError(
            f"uplink {uplink} sends {sends}, and {type(aggregating(inner)).__name__} needs {needs}; "
            "the uplink ef21 and the strategy EF21 belong together"
        )
    for _, strategy in nested_strategies(inner):
        if isinstance(strategy, CLIENT_SIDE_CLIPPING):
            _check_bound(uplink, type(strategy).__name__)


def _check_bound(uplink: Compressor, strategy: str) -> None:
    """Raise `ValueError` for an uplink whose messages do not follow the scale of the update: no clipping norm bounds them."""
    probe = np.linspace(-1, 1, 16, dtype=np.float32)
    try:
        uplink.encode(probe, uplink.init(probe.size), max_norm=PROBE_NORM)
    except ValueError as error:
        raise ValueError(
            f"uplink {uplink} cannot keep within the clipping norm of {strategy}: {error}; choose a method without a fixed step"
        ) from None


def log_clipping(messages: Iterable[Message]) -> None:
    """Log the clipping norm that the configs of `messages` hold, if any."""
    for norm in {clipping_norm(message.content) for message in messages} - {None}:
        log(INFO, "fedcomp: clipping_norm %g is in the config: each node's decoded update has at most that norm", norm)


def log_ratio(server_round: int, ledger: Ledger, uplink: Compressor) -> None:
    """Log the traffic of the first round of a run that brought updates; warn if hardly anything is gained."""
    traffic = ledger.of_round(server_round)
    if not traffic.dense_uplink_bytes or traffic.dense_uplink_bytes < ledger.dense_uplink_bytes:
        return
    ratio = traffic.dense_uplink_bytes / traffic.uplink_bytes
    up = f"uplink {traffic.uplink_bytes} bytes, {ratio:.1f} times smaller than dense"
    down = f"downlink {traffic.downlink_bytes} bytes, of dense {traffic.dense_downlink_bytes}"
    log(INFO, "fedcomp: round %d: %s; %s", server_round, up, down)
    if ratio < MIN_USEFUL_RATIO and uplink.name != "dense":
        log(WARNING, "fedcomp: uplink %s hardly compresses this model: ratio %.2f", uplink, ratio)
