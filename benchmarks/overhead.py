"""The overhead of messages in a study: client steps per second on `LocalGrid` and in a bare training loop.

    python -m benchmarks.overhead [--dataset mnist --data-dir DIR]

The bare loop trains the same clients on the same batches, one after another, without messages, compression or server.
The two alternate in this process, and the ratio is the median over their runs.
"""

import argparse
import logging
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg

import fedcomp
from benchmarks.measurement import paired_seconds, print_table
from clients.app import app as client_app
from clients.local import LocalPlan, train
from clients.samples import own_card, own_samples
from deploy.run_config import ROOT, app_of
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.tasks import build_model, input_shape

CLIENTS, A_ROUND = 100, 10
Config = dict[str, str | int | float | bool]


WORKS = tuple(
    (model, link, steps, rounds)
    for model, pace in (("logistic", 1), ("cnn", 4))
    for steps, rounds in ((1, 40 // pace), (25, 4 // pace))
    for link in ("dense()", "stc(density=0.01)")
)
"""The model, the compressor of both directions, local steps, and the number of rounds of a measurement."""


def measure(link: str, steps: int, rounds: int, config: Config, repeat: int) -> list[tuple[float, float]]:
    """Return the seconds on the grid and in the bare loop, for each of `repeat` measurements."""
    torch.set_num_threads(1)
    card = own_card(str(config["dataset"]))
    model = build_model(str(config["model"]), input_shape(card), card.num_classes, 0)
    compressor = fedcomp.parse(link)
    strategy = CompressedStrategy(
        FedAvg(fraction_train=A_ROUND / CLIENTS + 1e-9, fraction_evaluate=0.0), uplink=compressor, downlink=compressor
    )
    grid = LocalGrid(client_app, CLIENTS, config, in_memory=True)
    strategy.start(
        grid, ArrayRecord(model.state_dict()), num_rounds=3 * CLIENTS // A_ROUND
    )  # most nodes hold a replica
    for context in grid.contexts.values():
        context.run_config["local-steps"] = steps
    plan = LocalPlan(1, steps, int(config["batch-size"]), 0.04, 0.0, 0.0)
    seeds = count()

    def on_grid() -> None:
        strategy.start(grid, strategy.arrays, num_rounds=rounds)

    def bare() -> None:
        for number in range(rounds * A_ROUND):
            node = {"partition-id": number * 7 % CLIENTS, "num-partitions": CLIENTS}
            x, y = own_samples(config, node, torch.device("cpu"))
            train(model, x, y, plan, np.random.default_rng(next(seeds)))

    return paired_seconds(on_grid, bare, repeat)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-dir", default="", help="the folder of the dataset's files; embedded ones need none")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    config: Config = {
        **app_of(ROOT)["config"],
        "dataset": options.dataset,
        "data-dir": str(Path(options.data_dir).expanduser().absolute()) if options.data_dir else "",
        "partition": "iid()",
        "batch-size": 20,
        "learning-rate": 0.04,
        "device": "cpu",
    }
    rows: list[dict[str, object]] = []
    for model, link, steps, rounds in WORKS:
        pairs = measure(link, steps, rounds, config | {"model": model, "local-steps": 1}, options.turns)
        grid, bare = (rounds * A_ROUND * steps / median(seconds) for seconds in zip(*pairs, strict=True))
        rows.append(
            {
                "model": model,
                "up and down": link,
                "local steps": steps,
                "grid": f"{grid:.0f}",
                "bare loop": f"{bare:.0f}",
                "overhead": f"{median(mine / base for mine, base in pairs) - 1:.0%}",
            }
        )
    print_table(f"{options.dataset}, batches of 20: SGD steps of clients per second", rows)


if __name__ == "__main__":
    main()
