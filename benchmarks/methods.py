"""Every method as uplink: accuracy and bytes on a non-IID run, and the speed of its codec.

    python -m benchmarks.methods [accuracy] [speed] [--methods stc topk ...] [--out runs/methods]

`accuracy` runs the Flower app on `LocalGrid` with the digits, 50 nodes with 2 classes each, 10 of them in a round, for 200
rounds. The downlink is dense, except for DoubleSqueeze, which uses its own codec. It shows the mean test accuracy of the
last 20 rounds with half the spread over the seeds, the kilobytes of all uplink messages, and the ratio of dense to sent
bytes. A finished run does not run again. ef21 runs with the strategy EF21, signsgd with the majority vote.

`speed` encodes and decodes a Gaussian update shaped like ResNet-18 (11.2 M entries), in multiples of a memcpy of it;
``paper`` is the number of bits a parameter that the method's paper gives (`formulas.py`), "-" if it gives none.
"""

import argparse
import contextlib
import inspect
import io
import json
import logging
import math
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from flwr.app import Context, RecordDict, UserConfig
from rich.console import Console
from rich.table import Table

import fedcomp
from benchmarks.codecs import measure
from benchmarks.formulas import paper_bits
from clients.app import app as client_app
from fedcomp.core import Shapes, parse_call
from fedcomp.flower import LocalGrid
from server.app import app as server_app

ROOT = Path(__file__).resolve().parents[1]
NODES, ROUNDS, LAST = 50, 200, 20


@dataclass(frozen=True, slots=True)
class Arm:
    """An uplink, with the strategy and the downlink that it needs."""

    uplink: str
    strategy: str = "fedavg"
    downlink: str = "dense()"

    @property
    def name(self) -> str:
        """The method's name."""
        return parse_call(self.uplink)[0]


DENSITY = 0.02
VARIANTS = {
    "topk": [
        Arm(f"topk(density={DENSITY}{more})")
        for more in ("", ", values='fp16'", ", values='natural'", ", feedback=False")
    ],
    "regtopk": [Arm(f"regtopk(density={DENSITY}, nodes=10)")],
    "dgc": [Arm(f"dgc(density={DENSITY}, momentum=0.5)")],
    "fastsgd": [Arm("fastsgd(levels=8)")],
    "ef21": [Arm(f"ef21(density={DENSITY}, momentum=0.5)", "ef21(eta=1.0)")],
    "signsgd": [Arm("signsgd(step=0.005)", "majorityvote(step=0.005)")],
    "doublesqueeze": [Arm(text, downlink=text) for text in ("doublesqueeze()", "doublesqueeze(codec='topk')")],
    "qsgd": [Arm("qsgd(levels=7)"), Arm("qsgd(levels=1, norm='l2')")],
    "cgx": [Arm("cgx(bits=4)"), Arm("cgx(bits=4, adaptive=True)")],
    "eden": [Arm("eden(bits=2)"), Arm("eden(bits=0.1)")],
    "powersgd": [Arm("powersgd(rank=2)")],
}
"""Method -> its arms, for those that need other settings, a strategy, or several arms."""


def arms() -> Iterator[Arm]:
    """Yield the arms of every method in `fedcomp.METHODS`, at about the same density if it has one."""
    for name, make in fedcomp.METHODS.items():
        settings = f"density={DENSITY}" if "density" in inspect.signature(make).parameters else ""
        yield from VARIANTS.get(name, [Arm(f"{name}({settings})")])


def run(arm: Arm, out: Path, seed: int) -> dict[str, float]:
    """Run an arm unless it has run, and return accuracy (mean of the last rounds), uplink bytes, bits a parameter and ratio."""
    folder = out / _slug(arm, seed)
    if not (folder / "summary.json").exists():
        config: UserConfig = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        config |= {"uplink": arm.uplink, "downlink": arm.downlink, "strategy": arm.strategy, "num-rounds": ROUNDS}
        config |= {"seed": seed, "runs-dir": str(out.absolute()), "run-name": folder.name}
        begin = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            server_app(LocalGrid(client_app, NODES, config), Context(1, 0, {}, RecordDict(), config))
        print(f"{arm.uplink}, seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    dense = summary["dense_uplink_bytes"]
    return {
        "accuracy": statistics.mean(line["accuracy"] for line in lines[-LAST:]),
        "uplink_bytes": summary["uplink_bytes"],
        "bits": 32 * summary["uplink_bytes"] / dense,
        "ratio": dense / summary["uplink_bytes"],
    }


def accuracy(arm: Arm, out: Path, seeds: int) -> list[str]:
    """Return accuracy, uplink kilobytes, bits a parameter and compression ratio of an arm, over its seeds."""
    runs = [run(arm, out, seed) for seed in range(seeds)]
    percents = [100 * one["accuracy"] for one in runs]
    up, bits, ratio = (statistics.mean(one[key] for one in runs) for key in ("uplink_bytes", "bits", "ratio"))
    return [
        f"{statistics.mean(percents):.1f} ± {(max(percents) - min(percents)) / 2:.1f}",
        f"{up / 1e3:,.0f}",
        f"{bits:.3f}",
        f"{ratio:.1f}",
    ]


def resnet18() -> Shapes:
    """Return the shapes of the 62 parameters of ResNet-18 for CIFAR-10, 11,173,962 entries in all."""
    return tuple(_resnet18())


def _resnet18() -> Iterator[tuple[int, ...]]:
    def layer(outputs: int, inputs: int, side: int) -> Iterator[tuple[int, ...]]:
        yield from ((outputs, inputs, side, side), (outputs,), (outputs,))

    yield from layer(64, 3, 3)
    widths = (64, 64, 128, 256, 512)
    for inputs, outputs in pairwise(widths):
        yield from layer(outputs, inputs, 3)
        yield from layer(outputs, outputs, 3)
        if inputs != outputs:
            yield from layer(outputs, inputs, 1)
        yield from layer(outputs, outputs, 3)
        yield from layer(outputs, outputs, 3)
    yield from ((10, 512), (10,))


def speed(arm: Arm, repeats: int) -> list[str]:
    """Return encode and decode times in multiples of a memcpy, bits a parameter, and the paper's bits a parameter."""
    shapes = resnet18()
    n = sum(map(math.prod, shapes))
    compressor = fedcomp.parse(arm.uplink)
    row = measure(compressor, n, repeats, shapes)
    paper = paper_bits(compressor, shapes)
    times = [f"{x:.1f}" for x in (row.encode, row.decode)]
    return [*times, f"{8 * row.size / n:.4f}", "-" if paper is None else f"{paper / n:.4f}"]


COLUMNS = {
    "accuracy": ("accuracy (%)", "up (kB)", "bits/param", "ratio"),
    "speed": ("encode x", "decode x", "bits/param", "paper"),
}


def main() -> None:
    """Print one table with the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="accuracy, speed; both if none is named")
    parser.add_argument("--methods", nargs="+", help="only these, by name")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(COLUMNS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(COLUMNS)}")
    if unknown := set(options.methods or ()) - set(fedcomp.METHODS):
        parser.error(f"there is no method {', '.join(sorted(unknown))}; there are {', '.join(fedcomp.METHODS)}")
    if options.seeds < 1 or options.repeats < 1:
        parser.error(f"{options.seeds} seeds and {options.repeats} repeats; at least 1 of each is needed")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    parts = [part for part in COLUMNS if not options.parts or part in options.parts]
    table = Table()
    table.add_column("uplink", no_wrap=True)
    for part in parts:
        for column in COLUMNS[part]:
            table.add_column(column, justify="right", no_wrap=True)
    for arm in arms():
        if not options.methods or arm.name in options.methods:
            cells = accuracy(arm, options.out, options.seeds) if "accuracy" in parts else []
            cells += speed(arm, options.repeats) if "speed" in parts else []
            table.add_row(arm.uplink, *cells)
    Console(width=136).print(table)


def _slug(arm: Arm, seed: int) -> str:
    text = f"{arm.uplink}-{arm.strategy}-{arm.downlink}-{seed}"
    return "".join(character if character.isalnum() or character in "-." else "_" for character in text)


if __name__ == "__main__":
    main()
