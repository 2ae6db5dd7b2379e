"""Accuracy against uplink bytes: sparse ternary compression beside FedAvg, on one non-IID partition.

    python -m benchmarks.equal_bytes --data-dir DIR [--dataset fashion-mnist] [--clients 100] [--out runs/equal-bytes]

Each arm is a whole run of the Flower app on `LocalGrid`: the same code and the same bytes as ``flwr run``, in one process.
A finished arm is not run again.  Writes a figure and prints each arm's accuracy at the same uplink bytes.
"""

import argparse
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from flwr.app import Context, RecordDict, UserConfig
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from server.app import app as server_app

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Arm:
    """One method: its compressor both ways, local steps a round, and rounds."""

    name: str
    compressor: str
    local_steps: int
    rounds: int
    evaluate_every: int
    color: str
    style: str


ARMS = (
    Arm("FedAvg, 25 local steps", "dense()", 25, 120, 1, "#d55e00", "--"),
    Arm("FedAvg, 100 local steps", "dense()", 100, 60, 1, "#e69f00", "--"),
    Arm("STC 1/25, 1 local step", "stc(density=0.04)", 1, 2000, 20, "#56b4e9", "-"),
    Arm("STC 1/100, 1 local step", "stc(density=0.01)", 1, 2000, 20, "#0072b2", "-"),
    Arm("STC 1/100, 25 local steps", "stc(density=0.01)", 25, 240, 4, "#009e73", "-"),
)
"""STC 1/n beside FedAvg with n local steps, as Sattler et al. (TNNLS 2020) pair them; and STC with local steps as well."""


def run(arm: Arm, options: argparse.Namespace) -> None:
    """Run one arm of the comparison unless its summary is there."""
    folder = options.out / _slug(arm)
    if (folder / "summary.json").exists():
        return
    config: UserConfig = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {
        "dataset": options.dataset,
        "data-dir": str(options.data_dir),
        "partition": options.partition,
        "model": options.model,
        "num-rounds": arm.rounds,
        "evaluate-every": arm.evaluate_every,
        "fraction-train": options.fraction,
        "local-steps": arm.local_steps,
        "batch-size": options.batch_size,
        "learning-rate": options.learning_rate,
        "uplink": arm.compressor,
        "downlink": arm.compressor,
        "seed": options.seed,
        "runs-dir": str(options.out.absolute()),
        "run-name": _slug(arm),
        "checkpoint-every": 20,
        "resume": (folder / "checkpoint").exists(),
    }
    grid = LocalGrid(client_app, options.clients, config)
    server_app(grid, Context(1, 0, {}, RecordDict(), config))


def curve(arm: Arm, out: Path) -> tuple[list[float], list[float]]:
    """Return uplink megabytes, all nodes together, and test accuracy in percent, of the evaluated rounds."""
    rounds = [json.loads(line) for line in (out / _slug(arm) / "rounds.jsonl").read_text().splitlines()]
    sent = accumulate(line["uplink_bytes"] for line in rounds)
    points = [
        (up / 1e6, 100 * line["accuracy"]) for up, line in zip(sent, rounds, strict=True) if line["accuracy"] and up
    ]
    return [up for up, _ in points], [accuracy for _, accuracy in points]


def best_within(megabytes: Sequence[float], accuracy: Sequence[float], budget: float) -> float | None:
    """Return the best accuracy that a curve reaches within `budget` megabytes; None where it has no point yet."""
    return max((a for up, a in zip(megabytes, accuracy, strict=True) if up <= budget), default=None)


def draw(curves: dict[Arm, tuple[list[float], list[float]]], title: str) -> Figure:
    """Return test accuracy over uplink megabytes, one line an arm."""
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for arm, (megabytes, accuracy) in curves.items():
        best = [max(accuracy[: at + 1]) for at in range(len(accuracy))]
        axes.plot(megabytes, accuracy, arm.style, color=arm.color, linewidth=0.8, alpha=0.35)
        axes.plot(megabytes, best, arm.style, color=arm.color, linewidth=2, label=arm.name)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("sent up, all nodes together (MB, logarithmic)")
    axes.set_ylabel("test accuracy (%): each round thin, best so far thick")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, alpha=0.35)
    axes.legend(loc="lower right")
    return figure


def main() -> None:
    """Run what is missing, then draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="where the dataset's own files lie")
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--partition", default="classes(2)")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--fraction", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/equal-bytes"))
    options = parser.parse_args()
    options.data_dir = options.data_dir.absolute()
    for arm in ARMS:
        run(arm, options)

    curves = {arm: curve(arm, options.out) for arm in ARMS}
    shares = f"{options.clients} clients, {options.fraction:.0%} a round, {options.partition}"
    title = f"{options.dataset}, {options.model}, {shares}"
    draw(curves, title).savefig(options.out / "equal-bytes.png")
    budgets = [0.5, 2, 10, 50, 500]
    table = Table(title=f"best test accuracy (%) within so many MB sent up: {title}", title_justify="left")
    for column in ("", *(f"{budget:g} MB" for budget in budgets), "all", "MB sent"):
        table.add_column(column, justify="left" if not column else "right")
    for arm, (megabytes, accuracy) in curves.items():
        cells = (best_within(megabytes, accuracy, budget) for budget in (*budgets, float("inf")))
        table.add_row(arm.name, *("-" if cell is None else f"{cell:.1f}" for cell in cells), f"{megabytes[-1]:.1f}")
    Console(width=110).print(table)


def _slug(arm: Arm) -> str:
    return arm.name.replace(" ", "-").replace(",", "").replace("/", "of").lower()


if __name__ == "__main__":
    main()
