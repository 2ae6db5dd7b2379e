"""A node's samples, prepared once: its partition of the training split, or for ``own()`` those in the node's own folder."""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from fedcomp.data import Card, load, load_own, parse_partition, partition_train, read_card
from fedcomp.tasks import prepare, skew

CARDS = Path(__file__).resolve().parents[1] / "datasets"

Samples = tuple[Tensor, Tensor]


@lru_cache(maxsize=1)
def own_card(dataset: str) -> Card:
    """Return the card of the run's dataset."""
    return read_card(dataset, CARDS)


def partition_of(node: Mapping[str, object]) -> tuple[int, int]:
    """Return the partition of the node and the number of partitions; raise `ValueError` if its config lacks them."""
    number, count = node.get("partition-id"), node.get("num-partitions")
    if not isinstance(number, int) or not isinstance(count, int) or not 0 <= number < count:
        raise ValueError(
            f"node config has partition-id {number!r} of num-partitions {count!r};"
            " both are needed, as in --node-config 'partition-id=0 num-partitions=10'"
        )
    return number, count


def own_samples(run: Mapping[str, object], node: Mapping[str, object], device: torch.device) -> Samples:
    """Return the samples and labels of the node with config `node` in a run with config `run`, as the model reads them.

    The `data-dir` of the node precedes that of the run: on real devices, each has the data in its own place.  Raises
    `ValueError` if the node config lacks what the partition needs, and if the samples do not fit the run's card.
    """
    if has_own_samples(run):
        if not (folder := str(node.get("data-dir", ""))):
            raise ValueError(
                f"partition is {run['partition']!r}, and node config has no data-dir; the folder with the node's own"
                f""" samples and their card, {run["dataset"]}.toml, is needed, as in --node-config 'data-dir="/srv/data"'"""
            )
        return _samples_in(folder, str(run["dataset"]), device)
    number, count = partition_of(node)
    data_dir = str(node.get("data-dir", run["data-dir"]))
    return _shares(str(run["dataset"]), data_dir, str(run["partition"]), count, int(str(run["seed"])), device)(number)


def has_own_samples(run: Mapping[str, object]) -> bool:
    """Return whether each node has samples of its own in a run with config `run`, so that no dataset is partitioned."""
    return _partition(str(run["partition"])).own


def node_number(run: Mapping[str, object], node: Mapping[str, object], node_id: int) -> int:
    """Return the number, at least 0, that separates the random draws of a node from those of the others.

    It is the node's partition, or the id that Flower gave it if it has samples of its own and no partition.
    """
    if has_own_samples(run):
        return int(str(node.get("partition-id", node_id))) & (1 << 64) - 1
    return partition_of(node)[0]


_partition = lru_cache(maxsize=4)(parse_partition)  # each message asks twice


@lru_cache(maxsize=4)
def _samples_in(folder: str, dataset: str, device: torch.device) -> Samples:
    card = own_card(dataset)
    split = load_own(card, folder)
    return prepare(split.x, card, device), torch.tensor(split.y, device=device)


@lru_cache(maxsize=1)  # a process works for one run at a time
def _shares(
    dataset_name: str, data_dir: str, scheme: str, count: int, seed: int, device: torch.device
) -> Callable[[int], Samples]:
    """Return a function that gives the samples of a partition: in a simulation, a process works for many nodes."""
    card = own_card(dataset_name)
    dataset = load(card, data_dir or None)
    parts = partition_train(dataset, scheme, count, seed)

    @cache
    def share(number: int) -> Samples:
        rows = parts[number]
        x = skew(prepare(dataset.train.x[rows], card, device), scheme, number, count, seed)
        return x, torch.tensor(dataset.train.y[rows], device=device)

    return share
