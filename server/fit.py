"""Whether the settings of a run fit together and the number of its nodes: what can be known before anything starts."""

import math

import fedcomp
from fedcomp.core import parse_call
from fedcomp.flower import check_links
from fedcomp.sync import Clipping
from server.settings import Settings, SettingsError
from server.strategies import parse_strategy


def check_fit(settings: Settings, num_nodes: int | None = None) -> None:
    """Raise `SettingsError` for settings that do not fit together, or need more than `num_nodes` nodes, if that is known."""
    uplink, downlink = fedcomp.parse(settings.uplink), fedcomp.parse(settings.downlink)
    try:
        inner = parse_strategy(settings.strategy)()
        check_links(inner, uplink, downlink, Clipping(settings.clip_norm, settings.clip_median))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if num_nodes is None:
        return
    if settings.min_nodes > num_nodes:
        raise SettingsError(
            f"min-nodes is {settings.min_nodes}; there are {num_nodes} nodes, and at most as many are possible"
        )
    sampled = max(1, int(settings.fraction_train * num_nodes))
    if settings.sampling_decay:
        last = settings.fraction_train * math.exp(-settings.sampling_decay * (settings.num_rounds - 1)) * num_nodes
        sampled = min(sampled, max(2, math.ceil(last)))
    needed = _needed(settings.strategy)
    if sampled < needed:
        raise SettingsError(
            f"strategy is {settings.strategy!r}, which needs {needed} updates in each round; with fraction-train "
            f"{settings.fraction_train:g} and sampling-decay {settings.sampling_decay:g}, {sampled} of {num_nodes} nodes train"
        )


def _needed(strategy: str) -> int:
    """Return the fewest updates of a round with which a strategy bears the malicious nodes that it is set up for.

    Krum, and MultiKrum, which also selects m of the n updates: n >= 2 f + 3 (Blanchard et al., NeurIPS 2017, proposition 4.2);
    Bulyan: n >= 4 f + 3 (El Mhamdi et al., ICML 2018).
    """
    name, _, settings = parse_call(strategy)
    malicious = int(str(settings.get("num_malicious_nodes", 0)))
    if name in ("krum", "multikrum"):
        return max(2 * malicious + 3 if malicious else 1, int(str(settings.get("num_nodes_to_select", 1))))
    if name == "bulyan":
        return 4 * malicious + 3
    return 1
