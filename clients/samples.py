"""A node's own samples: its partition of the training split, prepared once and kept while the run is the same."""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from fedcomp.data import Card, load, partition_train, read_card
from fedcomp.tasks import prepare, skew

CARDS = Path(__file__).resolve().parents[1] / "datasets"

Samples = tuple[Tensor, Tensor]


@lru_cache(maxsize=1)
def own_card(dataset: str) -> Card:
    """Return the card of the run's dataset."""
    return read_card(dataset, CARDS)


def partition_of(node: Mapping[str, object]) -> tuple[int, int]:
    """Return the node's partition and their number; raise `ValueError` if the node config does not say."""
    number, count = node.get("partition-id"), node.get("num-partitions")
    if not isinstance(number, int) or not isinstance(count, int) or not 0 <= number < count:
        raise ValueError(
            f"node config has partition-id {number!r} of num-partitions {count!r};"
            " both are needed, as in --node-config 'partition-id=0 num-partitions=10'"
        )
    return number, count


def own_samples(run: Mapping[str, object], node: Mapping[str, object], device: torch.device) -> Samples:
    """Return samples, as the model reads them, and labels of the node with config `node` in a run with config `run`.

    A node's `data-dir` goes before the run's: on real devices the data lies where each has it.
    """
    number, count = partition_of(node)
    data_dir = str(node.get("data-dir", run["data-dir"]))
    return _shares(str(run["dataset"]), data_dir, str(run["partition"]), count, int(str(run["seed"])), device)(number)


@lru_cache(maxsize=4)
def _shares(
    dataset_name: str, data_dir: str, scheme: str, count: int, seed: int, device: torch.device
) -> Callable[[int], Samples]:
    """Return what gives the samples of a partition: a simulation's process works for many nodes, and those come back."""
    card = own_card(dataset_name)
    dataset = load(card, data_dir or None)
    parts = partition_train(dataset, scheme, count, seed)

    @cache
    def share(number: int) -> Samples:
        rows = parts[number]
        x = skew(prepare(dataset.train.x[rows], card, device), scheme, number, count, seed)
        return x, torch.tensor(dataset.train.y[rows], device=device)

    return share
