"""A downlink that follows the traffic: its density falls if nodes would fetch more than they send."""

import math

from fedcomp.compressor import Compressor
from fedcomp.core import build, check_range, parse_setting
from fedcomp.methods.registry import METHODS, Parts, register

__all__ = ["balanced"]

MIN_SHARE = 1 / 20
"""The least share of the named density.  On digits, 1/20 of the uplink's density still cost less than a point."""
MAX_GAIN = 0.25
"""Limits the step: what a returning node fetches reflects the densities of many past rounds."""


@register("chosen by fedcomp: what returning nodes fetch", uplink=False)
def balanced(method: str | Compressor = "stc(density=0.02)", balance: float = 1.0) -> Parts:
    """Return `method` with a density that `CompressedStrategy` adapts: returning nodes fetch `balance` times what they send.

    A node that was away fetches everything that it missed, so the same density costs more bytes down than up.  In each round
    the density moves towards the value at which the bytes of both directions are in balance, as measured in the last rounds,
    evaluation included.  First models do not count.  In the mode without rounds, fetched bytes count when the node answers.

    The density is between 1/20 of the density of `method` and all of it: choose 20 times the smallest density that you would
    accept.  The log says if one of these bounds prevents the balance.

    `method` is a compressor with a setting `density`, or its text.  For a single message, outside `CompressedStrategy`, the
    result is `method` itself.

    Examples:
        >>> from fedcomp.methods import stc
        >>> balanced(stc(density=0.01), balance=0.5)
        balanced(method='stc(density=0.01)', balance=0.5)
        >>> balanced("stc(density=0.01)") == balanced(stc(density=0.01))
        True
    """
    check_range("balance", balance, above=0)
    if isinstance(method, Compressor):
        compressor = method
    else:
        compressor = parse_setting("method", method, lambda text: build(text, METHODS, "method"))
    if "density" not in dict(compressor.settings):
        raise ValueError(
            f"{compressor} has no density that could follow the traffic; name one such as stc(density=0.02)"
        )
    if not METHODS.about(compressor.name).downlink:
        raise ValueError(f"{compressor} does not work as downlink; `fedcomp methods` lists those that do")
    return compressor.quantizer, compressor.entropy, compressor.memory


def with_share(compressor: Compressor, share: float) -> Compressor:
    """Return the method inside a `balanced` compressor, with its density multiplied by `share`."""
    method = build(str(dict(compressor.settings)["method"]), METHODS, "method")
    settings = dict(method.settings)
    density = settings.pop("density")
    if share == 1:
        return method
    return METHODS[method.name](**settings, density=float(f"{density * share:.3g}") or density)  # type: ignore[operator]


def balance_of(compressor: Compressor) -> float:
    """Return the setting `balance` of a `balanced` compressor."""
    return float(dict(compressor.settings).get("balance", 1.0))  # type: ignore[arg-type]


def first_share(participation: float) -> float:
    """Return the share of the named density for the first version, as if all missed versions had its size."""
    return max(MIN_SHARE, participation)


def next_share(share: float, *, fetched: float, sent: float, balance: float, participation: float) -> float:
    """Return the share of the named density for the next version; the arguments are as for `toward_balance`."""
    share = toward_balance(share, fetched=fetched, sent=sent, balance=balance, participation=participation)
    return min(1.0, max(MIN_SHARE, share))


def toward_balance(factor: float, *, fetched: float, sent: float, balance: float, participation: float) -> float:
    """Return the next factor of the density, one step towards nodes that fetch `balance` times the bytes that they send.

    `fetched` and `sent` are the bytes that returning nodes have fetched and sent in the last rounds.  The longer nodes are
    away, the smaller is the step: the fetched bytes then include many versions of earlier densities.
    """
    if not fetched or not sent:
        return factor
    return factor * math.pow(balance * sent / fetched, min(MAX_GAIN, participation / 2))
