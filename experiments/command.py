"""What the commands of experiments share: options, one sentence for what does not fit, samples of nodes, and rows in a file."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from clients.samples import Samples, own_card, own_samples
from experiments.results import write_text
from fedcomp import commands
from fedcomp.data import Card, DataError, load
from fedcomp.errors import FedcompError
from fedcomp.tasks import prepare

REFUSED = 2
BATCH = 1000
"""Samples that are evaluated at a time."""
Row = Mapping[str, Any]


class UsageError(Exception):
    """The arguments of a command cannot be used; the text says why in a sentence."""


@contextmanager
def usage() -> Iterator[None]:
    """Raise `UsageError` for the errors of settings, datasets and files in the block."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be used: {error.strerror}") from None
    except (ValueError, DataError, FedcompError) as error:
        raise UsageError(str(error)) from None


def command(run: Callable[[argparse.Namespace], int | None], parser: argparse.ArgumentParser) -> Callable[..., int]:
    """Return the ``main`` of a command: it runs with the parsed arguments, and returns its status, 2 after a `UsageError`."""

    def main(arguments: Sequence[str] | None = None) -> int:
        try:
            return run(parser.parse_args(arguments)) or 0
        except UsageError as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return REFUSED

    return main


def new_parser(prog: str, description: str | None, *, model: str = "", partition: str = "") -> argparse.ArgumentParser:
    """Return the parser of the command `prog`; with a `model` and a `partition`, it has the options of a task."""
    parser = commands.new_parser(prog, description)
    if model:
        parser.add_argument("--dataset", default="digits")
        parser.add_argument("--data-dir", default="", help="the folder of the dataset's files; digits needs none")
        parser.add_argument("--model", default=model)
    if partition:
        parser.add_argument("--partition", default=partition)
    return parser


def add_training(parser: argparse.ArgumentParser, *, steps: int, batch_size: int) -> None:
    """Add the options of local training and of the file of rows."""
    parser.add_argument("--steps", type=positive, default=steps, help="local steps in a round")
    parser.add_argument("--batch-size", type=positive, default=batch_size)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--out", type=commands.path_of, help="a CSV file for all evaluated rounds")


def positive(text: str) -> int:
    """Return the whole number above 0 in `text`; raise `ArgumentTypeError` for another text."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number above 0 is needed")
    return int(text)


def samples_of(dataset: str, data_dir: str, partition: str, seed: int, num_nodes: int) -> list[Samples]:
    """Return the training samples of each node; raises as `own_samples` does."""
    config = {"dataset": dataset, "data-dir": data_dir, "partition": partition, "seed": seed}
    nodes = ({"partition-id": node, "num-partitions": num_nodes} for node in range(num_nodes))
    return [own_samples(config, node, torch.device("cpu")) for node in nodes]


def load_test(dataset: str, data_dir: str) -> tuple[Card, Samples]:
    """Return the card of a dataset and its test samples, as models read them."""
    card = own_card(dataset)
    test = load(card, data_dir or None).test
    return card, (prepare(test.x, card, "cpu"), torch.tensor(test.y))


def check_out(path: Path | None) -> None:
    """Raise `ValueError` for the name of a file that cannot be one."""
    if path and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ValueError(f"--out is {str(path)!r}; a file in a folder that exists is needed")


def save(rows: Sequence[Row], path: Path | None) -> None:
    """Write the rows to a CSV file, if there is a `path`."""
    if path:
        write_text(path, pd.DataFrame(rows).to_csv(index=False))
