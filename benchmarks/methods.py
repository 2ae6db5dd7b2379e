"""Every method as uplink: accuracy and bytes on a non-IID run, and the speed of its codec.

    python -m benchmarks.methods [accuracy] [speed] [--methods stc topk ...] [--out runs/methods]

`accuracy` runs the Flower app on `LocalGrid` with the digits, 50 nodes with 2 classes each, 10 of them a round, 200 rounds,
the downlink dense.  A finished run is not run again.  `speed` encodes and decodes a Gaussian update shaped like ResNet-18
(11.2 M entries), as multiples of a memcpy of it.  ``paper`` are the bits that the method's paper gives (`formulas.py`).
"""

import argparse
import contextlib
import io
import json
import logging
import math
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
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
from fedcomp.call import parse_call
from fedcomp.flower import LocalGrid
from fedcomp.occasion import Shapes
from server.app import app as server_app

ROOT = Path(__file__).resolve().parents[1]
NODES, ROUNDS, LAST = 50, 200, 20


@dataclass(frozen=True, slots=True)
class Arm:
    """An uplink, and the strategy that it belongs to."""

    uplink: str
    strategy: str = "fedavg"
    downlink: str = "dense()"

    @property
    def name(self) -> str:
        """The method's name."""
        return parse_call(self.uplink)[0]


ARMS = (
    Arm("dense()"),
    Arm("stc(density=0.02)"),
    Arm("topk(density=0.02)"),
    Arm("topk(density=0.02, values='fp16')"),
    Arm("topk(density=0.02, values='natural')"),
    Arm("topk(density=0.02, feedback=False)"),
    Arm("randk(density=0.02)"),
    Arm("selective(density=0.02)"),
    Arm("hierarchical(density=0.02)"),
    Arm("regtopk(density=0.02, nodes=10)"),
    Arm("dgc(density=0.02, momentum=0.5)"),
    Arm("fastsgd(levels=8)"),
    Arm("sparseloco(density=0.02)"),
    Arm("ef21(density=0.02, momentum=0.5)", "ef21(eta=1.0)"),
    Arm("signsgd(step=0.005)", "majorityvote(step=0.005)"),
    Arm("onebit()"),
    Arm("efsign()"),
    Arm("doublesqueeze()", downlink="doublesqueeze()"),
    Arm("doublesqueeze(codec='topk')", downlink="doublesqueeze(codec='topk')"),
    Arm("qsgd(levels=7)"),
    Arm("qsgd(levels=1, norm='l2')"),
    Arm("ecqsgd()"),
    Arm("natural()"),
    Arm("natural_dithering()"),
    Arm("terngrad()"),
    Arm("cgx(bits=4)"),
    Arm("cgx(bits=4, adaptive=True)"),
    Arm("drive()"),
    Arm("eden(bits=2)"),
    Arm("eden(bits=0.1)"),
    Arm("powersgd(rank=2)"),
)
"""Every method, at about the same density where it has one; the learning rate is the same for all."""


def run(arm: Arm, out: Path, seed: int) -> dict[str, float]:
    """Return accuracy (mean of the last rounds), uplink bytes, and bits per parameter and message, of one finished run."""
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


def accuracy(arms: Sequence[Arm], out: Path, seeds: int) -> Table:
    """Return the table of all runs."""
    title = f"digits, classes(2), {NODES} nodes, 10 a round, {ROUNDS} rounds, {seeds} seeds, downlink dense unless said"
    table = Table(title=title, title_justify="left")
    for column in ("uplink", "accuracy (%)", "sent up (kB)", "bits/param", "dense/sent"):
        table.add_column(column, justify="left" if column == "uplink" else "right", no_wrap=True)
    for arm in arms:
        runs = [run(arm, out, seed) for seed in range(seeds)]
        percent = [100 * one["accuracy"] for one in runs]
        means = {key: statistics.mean(one[key] for one in runs) for key in runs[0]}
        spread = f" ± {(max(percent) - min(percent)) / 2:.1f}" if seeds > 1 else ""
        table.add_row(
            _said(arm),
            f"{means['accuracy'] * 100:.1f}{spread}",
            f"{means['uplink_bytes'] / 1e3:,.1f}",
            f"{means['bits']:.3f}",
            f"{means['ratio']:.1f}",
        )
    return table


def resnet18() -> Shapes:
    """Return the shapes of the 62 parameters of ResNet-18 for CIFAR-10, 11,173,962 entries in all."""
    return tuple(_resnet18())


def _resnet18() -> Iterator[tuple[int, ...]]:
    def layer(out: int, into: int, side: int) -> Iterator[tuple[int, ...]]:
        yield from ((out, into, side, side), (out,), (out,))

    yield from layer(64, 3, 3)
    widths = (64, 64, 128, 256, 512)
    for into, out in pairwise(widths):
        yield from layer(out, into, 3)
        yield from layer(out, out, 3)
        if into != out:
            yield from layer(out, into, 1)
        yield from layer(out, out, 3)
        yield from layer(out, out, 3)
    yield from ((10, 512), (10,))


def speed(arms: Sequence[Arm], repeats: int) -> Table:
    """Return the table of codec speeds and sizes."""
    shapes = resnet18()
    n = sum(map(math.prod, shapes))
    table = Table(
        title=f"a Gaussian update shaped like ResNet-18, {n:,} entries; x: multiples of memcpy", title_justify="left"
    )
    for column in ("method", "encode x", "decode x", "accumulate x", "bits/param", "paper", "peak"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for arm in arms:
        compressor = fedcomp.parse(arm.uplink)
        row = measure(compressor, n, repeats, shapes)
        paper = paper_bits(compressor, shapes)
        table.add_row(
            arm.uplink,
            *(f"{x:.1f}" for x in (row.encode, row.decode, row.accumulate)),
            f"{8 * row.size / n:.4f}",
            "-" if paper is None else f"{paper / n:.4f}",
            f"{row.peak:.2f}",
        )
    return table


def main() -> None:
    """Print the tables that are asked for, both if none is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="accuracy, speed; both if none is named")
    parser.add_argument("--methods", nargs="+", help="only these, by name")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    options = parser.parse_args()
    if unknown := set(options.tables) - {"accuracy", "speed"}:
        parser.error(f"there is no table {', '.join(sorted(unknown))}; there are accuracy and speed")
    if unknown := set(options.methods or ()) - {arm.name for arm in ARMS}:
        parser.error(f"there is no method {', '.join(sorted(unknown))}; there are {', '.join(fedcomp.METHODS)}")
    arms = [arm for arm in ARMS if not options.methods or arm.name in options.methods]
    logging.getLogger("flwr").setLevel(logging.ERROR)
    tables = options.tables or ["accuracy", "speed"]
    if "accuracy" in tables:
        Console(width=120).print(accuracy(arms, options.out, options.seeds))
    if "speed" in tables:
        unique = list({arm.uplink: arm for arm in arms}.values())
        Console(width=120).print(speed(unique, options.repeats))


def _said(arm: Arm) -> str:
    notes = [arm.strategy] if arm.strategy != "fedavg" else []
    notes += [f"downlink {arm.downlink}"] if arm.downlink != "dense()" else []
    return arm.uplink + (f" [{', '.join(notes)}]".replace("[", "(").replace("]", ")") if notes else "")


def _slug(arm: Arm, seed: int) -> str:
    text = f"{arm.uplink}-{arm.strategy}-{arm.downlink}-{seed}"
    return "".join(character if character.isalnum() or character in "-." else "_" for character in text)


if __name__ == "__main__":
    main()
