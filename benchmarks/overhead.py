"""The overhead of messages in a study: client steps per second on `LocalGrid` and in a bare training loop.

    python -m benchmarks.overhead [--dataset mnist --data-dir DIR]

The bare loop trains the same clients on the same batches, one after another, without messages, compression or server.
The two alternate in this process, and the ratio is the median over their runs.
"""

import argparse
import logging
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from rich.console import Console
from rich.table import Table

import fedcomp
from clients.app import app as client_app
from clients.local import LocalPlan, train
from clients.samples import own_card, own_samples
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.tasks import build_model, input_shape

ROOT = Path(__file__).resolve().parents[1]
CLIENTS, A_ROUND = 100, 10
Config = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Work:
    """The model and data, the compressors, and the number of rounds of a measurement."""

    model: str
    link: str
    local_steps: int
    rounds: int


WORKS = tuple(
    Work(model, link, steps, rounds)
    for model, pace in (("logistic", 1), ("cnn", 4))
    for steps, rounds in ((1, 40 // pace), (25, 4 // pace))
    for link in ("dense()", "stc(density=0.01)")
)


def turns(work: Work, config: Config, repeat: int) -> Iterator[tuple[float, float]]:
    """Yield steps per second on the grid and in the bare loop, for each of `repeat` measurements."""
    torch.set_num_threads(1)
    config = config | {"model": work.model, "local-steps": 1}
    card = own_card(str(config["dataset"]))
    model = build_model(work.model, input_shape(card), card.num_classes, 0)
    link = fedcomp.parse(work.link)
    strategy = CompressedStrategy(
        FedAvg(fraction_train=A_ROUND / CLIENTS + 1e-9, fraction_evaluate=0.0), uplink=link, downlink=link
    )
    grid = LocalGrid(client_app, CLIENTS, config, in_memory=True)
    strategy.start(
        grid, ArrayRecord(model.state_dict()), num_rounds=3 * CLIENTS // A_ROUND
    )  # most nodes hold a replica
    for context in grid.contexts.values():
        context.run_config["local-steps"] = work.local_steps
    plan = LocalPlan(1, work.local_steps, int(config["batch-size"]), 0.04, 0.0, 0.0)
    seeds = count()
    steps = work.rounds * A_ROUND * work.local_steps
    for _ in range(repeat):
        begin = time.perf_counter()
        strategy.start(grid, strategy.arrays, num_rounds=work.rounds)
        middle = time.perf_counter()
        for number in range(work.rounds * A_ROUND):
            node = {"partition-id": number * 7 % CLIENTS, "num-partitions": CLIENTS}
            x, y = own_samples(config, node, torch.device("cpu"))
            train(model, x, y, plan, np.random.default_rng(next(seeds)))
        yield steps / (middle - begin), steps / (time.perf_counter() - middle)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-dir", default="", help="the folder of the dataset's files; not needed for digits")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    config: Config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {
        "dataset": options.dataset,
        "data-dir": str(Path(options.data_dir).expanduser().absolute()) if options.data_dir else "",
        "partition": "iid()",
        "batch-size": 20,
        "learning-rate": 0.04,
        "device": "cpu",
    }
    table = Table(title=f"{options.dataset}, batches of 20: SGD steps of clients per second", title_justify="left")
    for name in ("model", "up and down", "local steps", "grid", "bare loop", "overhead"):
        table.add_column(name, justify="left" if name in ("model", "up and down") else "right")
    for work in WORKS:
        measured = list(turns(work, config, options.turns))
        grid, bare = (median(column) for column in zip(*measured, strict=True))
        overhead = median(b / g for g, b in measured) - 1
        table.add_row(work.model, work.link, str(work.local_steps), f"{grid:.0f}", f"{bare:.0f}", f"{overhead:.0%}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
