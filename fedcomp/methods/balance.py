"""A downlink that follows the traffic: its density falls where nodes would fetch more than they send."""

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

    A node that was away fetches all that it missed, so the same density costs more down than up.  From round to round the
    density moves towards the one at which the bytes of both directions are in balance, as measured in the last rounds,
    evaluation included.  It is at most that of `method`, and at least 1/20 of it: choose 20 times the smallest density that
    you would accept.  The log says so where a bound keeps nodes from the balance.  Nodes' first models do not count.  Without
    rounds, what a node fetches counts when it answers.  `method` is a compressor with a setting `density`, or its text.
    Alone, for a single message, it is `method` itself.

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
        raise ValueError(f"{compressor} does not work as downlink; `python -m fedcomp methods` lists those that do")
    return compressor.quantizer, compressor.entropy, compressor.memory


def with_share(compressor: Compressor, share: float) -> Compressor:
    """Return the method within a `balanced` compressor, with this share of its density."""
    method = build(str(dict(compressor.settings)["method"]), METHODS, "method")
    settings = dict(method.settings)
    density = settings.pop("density")
    if share == 1:
        return method
    return METHODS[method.name](**settings, density=float(f"{density * share:.3g}") or density)  # type: ignore[operator]


def balance_of(compressor: Compressor) -> float:
    """Return the balance that a `balanced` compressor names."""
    return float(dict(compressor.settings).get("balance", 1.0))  # type: ignore[arg-type]


def first_share(participation: float) -> float:
    """Return the share of the named density for the first version, as if all that a node misses were of its own bytes."""
    return max(MIN_SHARE, participation)


def next_share(share: float, *, fetched: float, sent: float, balance: float, participation: float) -> float:
    """Return the share of the named density for the next version; the arguments are those of `toward_balance`."""
    share = toward_balance(share, fetched=fetched, sent=sent, balance=balance, participation=participation)
    return min(1.0, max(MIN_SHARE, share))


def toward_balance(factor: float, *, fetched: float, sent: float, balance: float, participation: float) -> float:
    """Return the factor of the density with which nodes come to fetch `balance` times what they send.

    `fetched` and `sent` are the bytes that returning nodes have fetched and sent in the last rounds.  The step is smaller the
    longer nodes are away: what they fetch then holds many versions of earlier densities.
    """
    if not fetched or not sent:
        return factor
    return factor * math.pow(balance * sent / fetched, min(MAX_GAIN, participation / 2))
