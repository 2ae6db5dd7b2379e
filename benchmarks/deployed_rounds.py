"""Seconds per round over real processes and sockets: plain Flower and compressed runs, on cold and on warm nodes, in turn.

    python -m benchmarks.deployed_rounds [--nodes 5 --entries 11200000 --turns 2]

Two federations run on this machine, each a SuperLink and SuperNodes, with TLS, keys and state folders.  On the cold nodes,
Flower starts a process for each message; the warm ones run under ``fedcomp warm``.  Each node is behind its own proxy, which
counts bytes and, in the second half, limits each direction to 20 Mbit/s.  The app trains nothing (`benchmarks/rounds_app`):
a round consists of processes, messages and compression.  The first round of a run is reported separately: the nodes then also
fetch the app and, if compressed, the whole model.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from itertools import pairwise, product
from operator import sub
from pathlib import Path
from statistics import median
from typing import Self

import psutil

from benchmarks.measurement import print_table
from benchmarks.netshape.link import ShapedLink
from benchmarks.netshape.shaper import UNSHAPED, Shape
from deploy.federation import Federation
from deploy.program import Program, signals_as_exits
from deploy.run_config import LaunchError

APP = Path(__file__).parent / "rounds_app"
SLOW = Shape(20e6 / 8, 0.01)
STC = "stc(density=0.0025)"
RUN_TIMEOUT_S = 1800.0
COMMANDS = {"cold": ["flower-supernode"], "warm": ["fedcomp", "warm", "flower-supernode"]}


@dataclass(frozen=True, slots=True)
class Spent:
    """What the nodes and the SuperLink have spent so far: bytes on all links, and CPU seconds."""

    up_bytes: int
    down_bytes: int
    node_s: float
    superlink_s: float

    def __sub__(self, other: Self) -> "Spent":
        return Spent(*map(sub, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: seconds of each round, and what it spent."""

    seconds: list[float]
    spent: Spent


class TimedFederation:
    """A federation with cold or warm nodes, each behind a link, that runs the app."""

    def __init__(self, folder: Path, nodes: int, kind: str, stack: ExitStack) -> None:
        """Start it; it ends with `stack`."""
        self.federation = stack.enter_context(Federation(folder, nodes, warm=False))
        self.federation.start_superlink()
        self.links: list[ShapedLink] = []
        for node in self.federation.nodes:
            self.links.append(ShapedLink(("127.0.0.1", self.federation.port)).start())
            stack.callback(self.links[-1].close)
            node.superlink, node.command = self.links[-1].address, COMMANDS[kind]
        self.federation.start_nodes()

    def turn(self, rounds: int, entries: int, link: str) -> Turn:
        """Return what a run takes whose messages `link` compresses, or that of plain Flower if it is empty."""
        out = self.federation.folder / f"seconds-{time.monotonic_ns()}"
        before = self.spent()
        run = self.federation.run(APP, {"rounds": rounds, "entries": entries, "link": link, "out": str(out)})
        if run.wait(RUN_TIMEOUT_S) != "finished:completed":
            run.stop()
            raise LaunchError(f"the run did not complete: {run.reason() or run.log()}")
        times = [float(line) for line in out.read_text().splitlines()]
        return Turn([end - begin for begin, end in pairwise(times)], self.spent() - before)

    def spent(self) -> Spent:
        """Return what all links and processes have spent since they started."""
        nodes = [node.program for node in self.federation.nodes]
        return Spent(
            sum(link.up_bytes for link in self.links),
            sum(link.down_bytes for link in self.links),
            sum(cpu_seconds(process) for program in nodes for process in _tree(program)),
            sum(_tree(self.federation.superlink.program)[0].cpu_times()[:2]),
        )


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and of all its children that have ended and were waited for."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:  # it has ended meanwhile; its parent counts it
        return 0.0


def _tree(program: Program) -> list[psutil.Process]:
    """Return the main process of a program, and all processes below it, those included that nobody has waited for."""
    main = program.main_process()
    if main is None:
        raise LaunchError(f"{program.name} has ended: {program.last_line()}")
    return [main, *main.children(recursive=True)]


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--entries", type=int, default=11_200_000, help="of the model (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each run (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="runs of each kind (default: %(default)s)")
    options = parser.parse_args()
    try:
        with signals_as_exits(), tempfile.TemporaryDirectory(prefix="fedcomp-rounds-") as folder:
            rows = list(measure(Path(folder), options))
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(f"{options.nodes} nodes, {options.entries:,} entries, on one machine", rows)
    print(
        "seconds a round: medians; megabytes a node and round, as the sockets carried them, and CPU seconds: over all rounds"
    )
    return 0


def measure(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    messages = options.nodes * options.rounds * options.turns
    with ExitStack() as stack:
        federations = {kind: TimedFederation(folder / kind, options.nodes, kind, stack) for kind in COMMANDS}
        for words, shape in (("as fast as it goes", UNSHAPED), ("20 Mbit/s, 10 ms", SLOW)):
            for federation in federations.values():
                for each in federation.links:
                    each.change(shape, shape)
            runs: dict[tuple[str, str], list[Turn]] = {kind: [] for kind in product(("", STC), COMMANDS)}
            for _ in range(options.turns):
                for (link, kind), found in runs.items():
                    found.append(federations[kind].turn(options.rounds, options.entries, link))
            plain = runs["", "cold"]
            for (link, kind), found in runs.items():
                yield {
                    "links": words,
                    "app": link or "plain Flower",
                    "nodes": kind,
                    "first round": f"{median(turn.seconds[0] for turn in found):.1f}",
                    "other rounds": f"{median(second for turn in found for second in turn.seconds[1:]):.1f}",
                    "of plain": f"{median(map(_ratio, found, plain)):.2f}",
                    "MB up": f"{sum(turn.spent.up_bytes for turn in found) / messages / 1e6:.2f}",
                    "MB down": f"{sum(turn.spent.down_bytes for turn in found) / messages / 1e6:.2f}",
                    "node CPU s": f"{sum(turn.spent.node_s for turn in found) / messages:.2f}",
                    "SuperLink CPU s": f"{sum(turn.spent.superlink_s for turn in found) / messages:.3f}",
                }


def _ratio(turn: Turn, plain: Turn) -> float:
    return median(turn.seconds[1:]) / median(plain.seconds[1:])


if __name__ == "__main__":
    sys.exit(main())
