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
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from flwr.app import Context, RecordDict, UserConfig

import fedcomp
from benchmarks.codecs import measure
from benchmarks.formulas import paper_bits
from benchmarks.measurement import print_table
from clients.app import app as client_app
from deploy.run_config import ROOT, app_of
from fedcomp.core import Shapes, parse_call
from fedcomp.flower import LocalGrid
from server.app import app as server_app

NODES, ROUNDS, LAST = 50, 200, 20
PARTS = ("accuracy", "speed")


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
    "doublesqueeze": [
        Arm(text, downlink=text)
        for text in ("doublesqueeze()", "doublesqueeze(codec='topk')", "doublesqueeze(codec='random')")
    ],
    "terngrad": [Arm("terngrad()"), Arm("terngrad(scaler='power')")],
    "ternary": [Arm("ternary()"), Arm("ternary(feedback=True)")],
    "qsgd": [Arm("qsgd(levels=7)"), Arm("qsgd(levels=1, norm='l2')")],
    "cgx": [Arm("cgx(bits=4)"), Arm("cgx(bits=4, adaptive=True)")],
    "crosspolytope": [Arm("crosspolytope(bits=0.3)"), Arm("crosspolytope(bits=0.1)")],
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
    """Run an arm unless it has run; return its accuracy (mean of the last rounds) and its uplink bytes, sent and dense."""
    text = f"{arm.uplink}-{arm.strategy}-{arm.downlink}-{seed}"
    folder = out / re.sub(r"[^\w.-]", "_", text)
    if not (folder / "summary.json").exists():
        config: UserConfig = app_of(ROOT)["config"]
        config |= {"uplink": arm.uplink, "downlink": arm.downlink, "strategy": arm.strategy, "num-rounds": ROUNDS}
        config |= {"seed": seed, "runs-dir": str(out.absolute()), "run-name": folder.name}
        begin = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            server_app(LocalGrid(client_app, NODES, config), Context(1, 0, {}, RecordDict(), config))
        print(f"{arm.uplink}, seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    accuracy = statistics.mean(line["accuracy"] for line in lines[-LAST:])
    return {"accuracy": accuracy, "sent": summary["uplink_bytes"], "dense": summary["dense_uplink_bytes"]}


def accuracy(arm: Arm, out: Path, seeds: int) -> dict[str, str]:
    """Return accuracy, uplink kilobytes, bits a parameter and compression ratio of an arm, over its seeds."""
    runs = [run(arm, out, seed) for seed in range(seeds)]
    percents = [100 * one["accuracy"] for one in runs]
    return {
        "accuracy (%)": f"{statistics.mean(percents):.1f} ± {(max(percents) - min(percents)) / 2:.1f}",
        "up (kB)": f"{statistics.mean(one['sent'] for one in runs) / 1e3:,.0f}",
        "bits/param": f"{statistics.mean(32 * one['sent'] / one['dense'] for one in runs):.3f}",
        "ratio": f"{statistics.mean(one['dense'] / one['sent'] for one in runs):.1f}",
    }


def resnet18() -> Shapes:
    """Return the shapes of the 62 parameters of ResNet-18 for CIFAR-10, 11,173,962 entries in all."""
    layers = [(64, 3, 3)]  # outputs, inputs, side of the filter
    for inputs, outputs in pairwise((64, 64, 128, 256, 512)):
        shortcut = [(outputs, inputs, 1)] if inputs != outputs else []
        layers += [(outputs, inputs, 3), (outputs, outputs, 3), *shortcut, *[(outputs, outputs, 3)] * 2]
    shapes: list[tuple[int, ...]] = []
    for outputs, inputs, side in layers:
        shapes += [(outputs, inputs, side, side), (outputs,), (outputs,)]
    return (*shapes, (10, 512), (10,))


def speed(arm: Arm, repeats: int) -> dict[str, str]:
    """Return encode and decode times in multiples of a memcpy, bits a parameter, and the paper's bits a parameter."""
    shapes = resnet18()
    n = sum(map(math.prod, shapes))
    compressor = fedcomp.parse(arm.uplink)
    row = measure(compressor, n, repeats, shapes)
    paper = paper_bits(compressor, shapes)
    return {
        "encode x": f"{row.encode:.1f}",
        "decode x": f"{row.decode:.1f}",
        "bits/param (ResNet-18)": f"{8 * row.size / n:.4f}",
        "paper": "-" if paper is None else f"{paper / n:.4f}",
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
    for kind, given, known in (("part", options.parts, PARTS), ("method", options.methods or (), fedcomp.METHODS)):
        if unknown := set(given) - set(known):
            parser.error(f"there is no {kind} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.seeds < 1 or options.repeats < 1:
        parser.error(f"{options.seeds} seeds and {options.repeats} repeats; at least 1 of each is needed")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    parts = options.parts or PARTS
    rows: list[dict[str, str]] = []
    for arm in arms():
        if not options.methods or arm.name in options.methods:
            row = {"uplink": arm.uplink}
            row |= accuracy(arm, options.out, options.seeds) if "accuracy" in parts else {}
            row |= speed(arm, options.repeats) if "speed" in parts else {}
            rows.append(row)
    print_table("every method as uplink", rows)


if __name__ == "__main__":
    main()
