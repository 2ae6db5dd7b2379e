"""A node's own samples: its partition of the training split, cut anew from the dataset but loaded once a process."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedcomp.data import Card, load, partition_train, read_card
from fedcomp.tasks import prepare

CARDS = Path(__file__).resolve().parents[1] / "datasets"


def own_card(run: Mapping[str, object]) -> Card:
    """Return the card of the run's dataset."""
    return read_card(str(run["dataset"]), CARDS)


def partition_of(node: Mapping[str, object]) -> tuple[int, int]:
    """Return the node's partition and their number; raise `ValueError` if the node config does not say."""
    number, count = node.get("partition-id"), node.get("num-partitions")
    if not isinstance(number, int) or not isinstance(count, int) or not 0 <= number < count:
        raise ValueError(
            f"node config has partition-id {number!r} of num-partitions {count!r};"
            " both are needed, as in --node-config 'partition-id=0 num-partitions=10'"
        )
    return number, count


def own_samples(run: Mapping[str, object], node: Mapping[str, object], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return samples, as the model reads them, and labels of the node with config `node` in a run with config `run`.

    A node's `data-dir` goes before the run's: on real devices the data lies where each has it.
    """
    card = own_card(run)
    number, count = partition_of(node)
    dataset = load(card, str(node.get("data-dir", run["data-dir"])) or None)
    rows = partition_train(dataset, str(run["partition"]), count, int(str(run["seed"])))[number]
    return prepare(dataset.train.x[rows], card, device), torch.tensor(dataset.train.y[rows], device=device)
