"""Train with nodes of different speeds, in rounds and without them; one line for each mode.

    python -m experiments.asynchronous --seconds 200

Time is virtual: a tenth of the nodes takes ten times as long as the others, messages take the time of the link, and a run is
the same each time. --out writes all evaluated versions to a CSV file.
"""

import argparse
import logging
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress

import torch
from flwr.app import ArrayRecord, MetricRecord

from benchmarks.netshape.profiles import BY_WORD
from clients.app import app as client_app
from experiments.command import Row, add_training, check_out, command, new_parser, positive, save, usage
from experiments.configuration import Value, defaults
from fedcomp.core import check_range
from fedcomp.flower import LocalGrid, Speeds
from server.app import open_run, prepare
from server.fit import check_partition, check_strategy
from server.settings import Settings

MODES = ("sync", "async(buffer=2, staleness=100)", "async(buffer=5, staleness=50)", "async(buffer=10)")
MAX_VERSIONS = 100_000


class TimeIsOver(Exception):
    """The virtual time of a run is over."""


def trial(settings: Settings, speeds: Speeds, options: argparse.Namespace) -> list[Row]:
    """Return the evaluated versions of a run: their virtual time, the accuracy 0 to 1, and the sums since the start.

    `slow_share` is the share of the slow nodes in all updates that went into the model.
    """
    rows = list[Row]()
    grid = LocalGrid(client_app, options.nodes, settings.to_config(), in_memory=True, speeds=speeds)
    evaluator, _, _ = prepare(settings, grid)
    _, strategy = open_run(settings, int)
    random.seed(settings.seed)
    slow = {node for node in grid.get_node_ids() if speeds.is_slow(node)}

    def evaluate(version: int, arrays: ArrayRecord) -> MetricRecord | None:
        is_over = grid.now() >= options.seconds or version == settings.num_rounds
        if is_over or not rows or grid.now() >= rows[-1]["seconds"] + options.every:
            loss, accuracy = evaluator(arrays)
            taken = {node: counts.dense_uplink_bytes for node, counts in strategy.ledger.by_node().items()}
            updates = sum(taken.values())
            share = sum(size for node, size in taken.items() if node in slow) / max(1, updates)
            total = strategy.ledger.total()
            size = max(1, sum(len(array.data) for array in arrays.values()))
            rows.append(
                {
                    "mode": settings.mode,
                    "seed": settings.seed,
                    "version": version,
                    "seconds": grid.now(),
                    "accuracy": accuracy,
                    "loss": loss,
                    "updates": updates // size,
                    "slow_share": share,
                    "refused": total.refused,
                    "uplink_bytes": total.uplink_bytes,
                    "downlink_bytes": total.downlink_bytes,
                }
            )
        if is_over:
            raise TimeIsOver
        return None

    with suppress(TimeIsOver):
        strategy.start(grid, evaluator.initial_arrays(), settings.num_rounds, evaluate_fn=evaluate)
    return rows


def run(options: argparse.Namespace) -> None:
    """Print a line for each mode and seed."""
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="fedcomp-asynchronous-") as folder:
        with usage():
            trials = [_settings(options, mode, seed, folder) for mode in options.modes for seed in range(options.seeds)]
            check_range("--target", options.target, above=0, most=1)
            check_out(options.out)
        reached = f"until {100 * options.target:g} %"
        print(
            f"{'mode':<32}{'seed':>5}{reached:>12}{'kB':>7}{'best':>7}{'last':>7}{'versions':>10}{'updates':>9}{'slow':>7}"
            f"{'refused':>9}{'kB':>7}"
        )
        rows: list[Row] = []
        for settings, speeds in trials:
            found = trial(settings, speeds, options)
            print(_line(found, options.target), flush=True)
            rows += found
            save(rows, options.out)


def _line(rows: Sequence[Row], target: float) -> str:
    last, first = rows[-1], next((row for row in rows if row["accuracy"] >= target), None)
    seconds, size = (f"{first['seconds']:.0f} s", f"{_sent_kb(first):.0f}") if first else ("never", "-")
    best = max(row["accuracy"] for row in rows)
    return (
        f"{last['mode']:<32}{last['seed']:>5}{seconds:>12}{size:>7}{100 * best:>7.1f}{100 * last['accuracy']:>7.1f}"
        f"{last['version']:>10}{last['updates']:>9}{100 * last['slow_share']:>6.1f}%{last['refused']:>9}{_sent_kb(last):>7.0f}"
    )


def _sent_kb(row: Row) -> float:
    return float(row["uplink_bytes"] + row["downlink_bytes"]) / 1e3


def _settings(options: argparse.Namespace, mode: str, seed: int, folder: str) -> tuple[Settings, Speeds]:
    """Return the app's default settings, changed by the options, and how fast nodes and links are."""
    check_range("--seconds", options.seconds, above=0)
    check_range("--every", options.every, least=0)
    given = {name.replace("_", "-"): value for name, value in vars(options).items()}
    config: dict[str, Value] = {
        **{key: given.get(key, default) for key, default in defaults().items()},
        "local-steps": options.steps,
        "mode": mode,
        "seed": seed,
        "num-rounds": MAX_VERSIONS,
        "runs-dir": folder,
    }
    settings = Settings.from_config(config)
    check_strategy(settings, options.nodes)
    _, dataset, connected = prepare(settings, LocalGrid(client_app, options.nodes, settings.to_config()))
    check_partition(settings, dataset, connected)
    link = BY_WORD[options.link]
    nodes = (options.compute, options.slow, options.slowdown, options.spread)
    return settings, Speeds(*nodes, link.down_mbit_s, link.up_mbit_s, link.round_trip_ms / 1e3, seed)


PARSER = new_parser("python -m experiments.asynchronous", "Rounds, and none.", model="mlp", partition="classes(2)")
add_training(PARSER, steps=4, batch_size=10)
PARSER.add_argument("--nodes", type=positive, default=50)
PARSER.add_argument("--fraction-train", type=float, default=0.2, help="of the nodes train at a time")
PARSER.add_argument("--modes", nargs="+", default=MODES, metavar="MODE")
PARSER.add_argument("--uplink", default="stc(density=0.02)")
PARSER.add_argument("--downlink", default="stc(density=0.02)")
PARSER.add_argument("--seconds", type=float, default=200.0, help="of virtual time")
PARSER.add_argument("--every", type=float, default=5.0, help="virtual seconds between evaluations")
PARSER.add_argument("--target", type=float, default=0.9, help="accuracy")
PARSER.add_argument("--compute", type=float, default=1.0, help="virtual seconds of an update")
PARSER.add_argument("--slow", type=float, default=0.1, help="the share of slow nodes")
PARSER.add_argument("--slowdown", type=float, default=10.0, help="times that a slow node takes longer")
PARSER.add_argument("--spread", type=float, default=0.2, help="of the times of one node")
PARSER.add_argument("--link", choices=sorted(BY_WORD), default="lte")
PARSER.add_argument("--seeds", type=positive, default=1)
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
