"""A node's own samples, prepared once and kept while the run is the same.

They are its partition of the training split, or, where the run's partition is ``own()``, what lies in its own folder.
"""

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
    """Return the node's partition and their number, where samples are shared out.

    Raises `ValueError` if the node config does not say.
    """
    number, count = node.get("partition-id"), node.get("num-partitions")
    if not isinstance(number, int) or not isinstance(count, int) or not 0 <= number < count:
        raise ValueError(
            f"node config has partition-id {number!r} of num-partitions {count!r};"
            " both are needed, as in --node-config 'partition-id=0 num-partitions=10'"
        )
    return number, count


def own_samples(run: Mapping[str, object], node: Mapping[str, object], device: torch.device) -> Samples:
    """Return samples, as the model reads them, and labels of the node with config `node` in a run with config `run`.

    A node's `data-dir` goes before the run's: on real devices the data lies where each has it.  Raises `ValueError` where
    the node config lacks what the run's partition needs, and where the samples are not what the run's card says.
    """
    if brings_its_own(run):
        if not (folder := str(node.get("data-dir", ""))):
            raise ValueError(
                f"partition is {run['partition']!r}, and node config has no data-dir; the folder with the node's own"
                f""" samples and their card, {run["dataset"]}.toml, is needed, as in --node-config 'data-dir="/srv/data"'"""
            )
        return _of_folder(str(run["dataset"]), folder, device)
    number, count = partition_of(node)
    data_dir = str(node.get("data-dir", run["data-dir"]))
    return _shares(str(run["dataset"]), data_dir, str(run["partition"]), count, int(str(run["seed"])), device)(number)


def brings_its_own(run: Mapping[str, object]) -> bool:
    """Return whether in a run with config `run` each node has samples of its own, and nothing is shared out."""
    return _is_own(str(run["partition"]))


def number_of(run: Mapping[str, object], node: Mapping[str, object], node_id: int) -> int:
    """Return the number, at least 0, that tells a node's random draws from another's.

    It is its partition; where nodes bring their own samples and have none, it is the id that Flower gave the node.
    """
    if brings_its_own(run):
        return int(str(node.get("partition-id", node_id))) & (1 << 64) - 1
    return partition_of(node)[0]


@lru_cache(maxsize=4)
def _is_own(partition: str) -> bool:
    return parse_partition(partition).own


@lru_cache(maxsize=4)
def _of_folder(dataset_name: str, folder: str, device: torch.device) -> Samples:
    """Return the samples that lie in `folder`, on the device."""
    card = own_card(dataset_name)
    split = load_own(card, folder)
    return prepare(split.x, card, device), torch.tensor(split.y, device=device)


@lru_cache(maxsize=1)  # a process works for one run at a time, and a study's for many in turn
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
