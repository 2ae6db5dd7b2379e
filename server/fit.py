"""Whether the settings of a run fit together, its data and the number of its nodes: what is known before anything starts."""

import math
from pathlib import Path

from flwr.serverapp.strategy import Bulyan, FedAvg, FedMedian, FedTrimmedAvg, MultiKrum

import fedcomp
from fedcomp.data import Dataset, load, parse_partition, partition_train, read_card
from fedcomp.flower import Clipping, check_async, check_links, parse_mode
from server.settings import Settings, SettingsError
from server.strategies import MAX_NODES, parse_strategy

CARDS = Path(__file__).resolve().parents[1] / "datasets"


def check_strategy(settings: Settings, num_nodes: int | None = None) -> None:
    """Raise `ValueError` for a strategy that does not fit the links, or needs more than `num_nodes` nodes, if that is known."""
    uplink, downlink = fedcomp.parse(settings.uplink), fedcomp.parse(settings.downlink)
    inner = parse_strategy(settings.strategy)()
    check_links(inner, uplink, downlink, Clipping(settings.clip_norm, settings.clip_median))
    mode, needed = parse_mode(settings.mode), updates_needed(inner)
    if mode is not None:
        check_async(inner, mode, uplink)
        if mode.buffer < needed:
            raise SettingsError(
                f"mode is {settings.mode!r}; strategy {settings.strategy!r} needs {needed} updates at a time"
            )
    if num_nodes is None:
        return
    if settings.min_nodes > num_nodes:
        raise SettingsError(
            f"min-nodes is {settings.min_nodes}; there are {num_nodes} nodes, and at most as many are possible"
        )
    sampled = updates_of_a_round(settings, num_nodes)
    if mode is not None and sampled < mode.buffer:
        raise SettingsError(
            f"mode is {settings.mode!r}, but with fraction-train {settings.fraction_train:g} and sampling-decay "
            f"{settings.sampling_decay:g}, {sampled} of {num_nodes} nodes train at a time; its buffer is at most as large"
        )
    check_updates(settings, num_nodes)


def check_updates(settings: Settings, num_nodes: int) -> None:
    """Raise `ValueError` for a strategy that needs more updates in a round than `num_nodes` nodes send."""
    if lack := lacking_updates(settings, num_nodes):
        raise SettingsError(f"strategy is {settings.strategy!r}; {lack}")


def lacking_updates(settings: Settings, num_nodes: int) -> str:
    """Return why the updates of `num_nodes` nodes are too few for the strategy, and what is needed; empty if they are not."""
    needed, sampled = updates_needed(parse_strategy(settings.strategy)()), updates_of_a_round(settings, num_nodes)
    if sampled >= needed:
        return ""
    shares = f"fraction-train {settings.fraction_train:g} and sampling-decay {settings.sampling_decay:g}"
    return (
        f"it needs {needed} updates in each round, and with {shares}, {sampled} of {num_nodes} nodes train; "
        "a larger fraction-train is needed, or more nodes, for which min-nodes can wait"
    )


def updates_of_a_round(settings: Settings, num_nodes: int) -> int:
    """Return how many of `num_nodes` nodes train in the round with the fewest."""
    sampled = max(1, int(settings.fraction_train * num_nodes))
    if settings.sampling_decay:
        last = settings.fraction_train * math.exp(-settings.sampling_decay * (settings.num_rounds - 1)) * num_nodes
        sampled = min(sampled, max(2, math.ceil(last)))
    return sampled


def updates_needed(strategy: FedAvg) -> int:
    """Return the fewest updates of a round with which a strategy does what it is set up for.

    Krum, and MultiKrum, which also selects m of the n updates: n >= 2 f + 3 (Blanchard et al., NeurIPS 2017, proposition 4.2);
    Bulyan: n >= 4 f + 3 (El Mhamdi et al., ICML 2018).  The trimmed mean cuts off at least one update at each end, and the
    median is that of at least three: both are plain means of fewer updates (Yin et al., ICML 2018).
    """
    if isinstance(strategy, Bulyan):
        return 4 * strategy.num_malicious_nodes + 3
    if isinstance(strategy, MultiKrum):
        malicious = strategy.num_malicious_nodes
        return max(2 * malicious + 3 if malicious else 1, strategy.num_nodes_to_select)
    if isinstance(strategy, FedTrimmedAvg) and strategy.beta:
        n = math.ceil(min(1 / strategy.beta, MAX_NODES))
        return n + (int(strategy.beta * n) < 1)  # the product may be a little below 1
    return 3 if isinstance(strategy, FedMedian) else 1


def load_dataset(settings: Settings) -> Dataset:
    """Return the dataset of a run; raise `ValueError` or `OSError` if it cannot be loaded."""
    return load(read_card(settings.dataset, CARDS), settings.data_dir or None)


def check_partition(settings: Settings, dataset: Dataset, num_nodes: int) -> None:
    """Raise `ValueError` for a dataset that cannot be partitioned among `num_nodes` nodes."""
    if not parse_partition(settings.partition).own:
        partition_train(dataset, settings.partition, num_nodes, settings.seed)
