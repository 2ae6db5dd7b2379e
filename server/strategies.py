"""Strategies by name, Flower's and fedcomp's, in the text form of run configs: ``fedavgm(server_momentum=0.9)``."""

from collections.abc import Callable, Mapping
from functools import partial

from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
)

from fedcomp.core import check_int, check_range, parse_call
from fedcomp.flower import EF21, FedAMS, MajorityVote, QcmdAdagrad, QrdaAdagrad, RigL

MAX_NODES = 1 << 31
MAX_STEP = 1e6
"""The largest step size, regulariser and the like: larger ones only diverge."""
MAX_DECAY = 0.9999
"""The largest decay of a moment: with 1, nothing new would ever count."""
ADAPTIVE = ("eta", "tau")
"""Flower's `eta_l` is no setting: nothing reads it, and the nodes' step size is `learning-rate`."""
PROXIMAL = ("eta", "delta", "l1_strength")

STRATEGIES: Mapping[str, tuple[Callable[..., FedAvg], tuple[str, ...]]] = {
    "bulyan": (Bulyan, ("num_malicious_nodes",)),
    "ef21": (EF21, ("eta",)),
    "fedadagrad": (FedAdagrad, ADAPTIVE),
    "fedadam": (FedAdam, (*ADAPTIVE, "beta_1", "beta_2")),
    "fedams": (FedAMS, ("eta", "beta_1", "beta_2", "eps")),
    "fedavg": (FedAvg, ()),
    "fedavgm": (FedAvgM, ("server_learning_rate", "server_momentum")),
    "fedmedian": (FedMedian, ()),
    "fedprox": (FedProx, ("proximal_mu",)),
    "fedtrimmedavg": (FedTrimmedAvg, ("beta",)),
    "fedyogi": (FedYogi, (*ADAPTIVE, "beta_1", "beta_2")),
    "krum": (Krum, ("num_malicious_nodes",)),
    "majorityvote": (MajorityVote, ("step",)),
    "multikrum": (MultiKrum, ("num_malicious_nodes", "num_nodes_to_select")),
    "qcmdadagrad": (QcmdAdagrad, PROXIMAL),
    "qrdaadagrad": (QrdaAdagrad, (*PROXIMAL, "center")),
    "rigl": (RigL, ("interval", "fraction", "until")),
}
"""Name -> class, and the settings that a text may give it; the settings that all share come from the run config."""

_positive = partial(check_range, above=0, most=MAX_STEP)
RANGES: Mapping[str, Callable[[str, object], None]] = {
    **dict.fromkeys((*ADAPTIVE, "server_learning_rate", "step"), _positive),
    **dict.fromkeys(("beta_1", "beta_2", "server_momentum"), partial(check_range, least=0, most=MAX_DECAY)),
    **dict.fromkeys(("delta", "l1_strength"), partial(check_range, least=0, most=MAX_STEP)),
    "beta": partial(check_range, least=0, most=0.49),  # of the updates, cut off at each end
    "proximal_mu": partial(check_range, least=0, most=MAX_STEP),
    "num_malicious_nodes": partial(check_int, least=0, most=MAX_NODES),
    "num_nodes_to_select": partial(check_int, least=1, most=MAX_NODES),
}
"""The ranges of settings that Flower's strategies do not check."""


def parse_strategy(text: str) -> Callable[..., FedAvg]:
    """Return the maker of the strategy that `text` names, which takes the settings that all strategies share.

    Raises `ValueError` for an unknown strategy and for a setting out of range.
    """
    name, args, settings = parse_call(text)
    if name not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; there are: {', '.join(STRATEGIES)}")
    make, known = STRATEGIES[name]
    takes = f"{name} takes: {', '.join(known) or 'no settings'}"
    if args:
        raise ValueError(f"strategy {text!r} has a setting without a name; {takes}")
    for key, value in settings.items():
        if key not in known:
            raise ValueError(f"strategy {text!r} has an unknown setting {key!r}; {takes}")
        if key in RANGES:
            RANGES[key](key, value)
    make(**settings)  # fedcomp's strategies check their settings themselves
    return partial(make, **settings)
