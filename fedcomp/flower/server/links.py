"""Checks that a strategy and the compressors of its two links fit together."""

from flwr.serverapp.strategy import Strategy

from fedcomp.compressor import Compressor
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import ReplyUse, reply_use_of
from fedcomp.methods import METHODS
from fedcomp.wire import codec_id


def check_links(inner: Strategy, uplink: Compressor, downlink: Compressor) -> None:
    """Raise `ValueError` for a compressor on a link that it is not made for, and for increments that nobody sums."""
    if not isinstance(inner, Strategy):
        raise ValueError(f"the inner strategy is {inner!r}; an instance of a flwr Strategy is needed")
    for compressor in (uplink, downlink):
        if not isinstance(compressor, Compressor):
            raise ValueError(f"{compressor!r} is no compressor; fedcomp.parse makes one from text")
        codec_id(compressor.entropy)  # raises for a code without a number
    if uplink.name in METHODS and not METHODS.about(uplink.name).uplink:
        raise ValueError(f"{uplink} does not work as uplink; `python -m fedcomp methods` lists those that do")
    if downlink.name in METHODS and not METHODS.about(downlink.name).downlink:
        raise ValueError(f"{downlink} does not work as downlink; `python -m fedcomp methods` lists those that do")
    sums = reply_use_of(inner) is ReplyUse.INCREMENTS
    if uplink.memory.incremental != sums:
        sends = "increments of an estimate" if uplink.memory.incremental else "whole updates"
        needs = "increments" if sums else "whole updates"
        raise ValueError(
            f"uplink {uplink} sends {sends}, and {type(aggregating(inner)).__name__} needs {needs}; "
            "the uplink ef21 and the strategy EF21 belong together"
        )
