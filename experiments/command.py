"""What the commands of this folder have in common: an option's type, samples, one sentence for a refusal, and a CSV file."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from clients.samples import Samples, own_samples
from experiments.results import write_text
from fedcomp.data import Card, load
from fedcomp.tasks import prepare

REFUSED = 2
"""The exit code for arguments that cannot be used."""


def positive(text: str) -> int:
    """Return the whole number above 0 in `text`; raise `ArgumentTypeError` for another text."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number above 0 is needed")
    return int(text)


def refuse(command: str, error: Exception | str) -> int:
    """Print the sentence of `error` for ``python -m experiments.<command>``; return `REFUSED`."""
    print(f"python -m experiments.{command}: {error}", file=sys.stderr)
    return REFUSED


def check_out(path: Path | None) -> None:
    """Raise `ValueError` if no file can be at `path`."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ValueError(f"--out is {str(path)!r}; a file in a folder that exists is needed")


def write_rows(path: Path | None, rows: Iterable[Any]) -> None:
    """Write the dataclasses `rows` as a CSV file, with a column for each field; nothing without a `path`."""
    if path is not None:
        write_text(path, pd.DataFrame(map(asdict, rows)).to_csv(index=False))


def node_samples(options: argparse.Namespace, partition: str, seed: int) -> list[Samples]:
    """Return the training samples of each of the `nodes` in `options`."""
    config = {"dataset": options.dataset, "data-dir": options.data_dir, "partition": partition, "seed": seed}
    nodes = ({"partition-id": node, "num-partitions": options.nodes} for node in range(options.nodes))
    return [own_samples(config, node, torch.device("cpu")) for node in nodes]


def test_samples(card: Card, data_dir: str) -> Samples:
    """Return the test split as a model reads it."""
    test = load(card, data_dir or None).test
    return prepare(test.x, card, "cpu"), torch.tensor(test.y)
