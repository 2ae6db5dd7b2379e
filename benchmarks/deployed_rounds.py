"""Seconds per round over real processes and sockets: plain Flower and compressed runs alternate on one federation.

    python -m benchmarks.deployed_rounds [--nodes 5 --entries 11200000 --turns 2]

A SuperLink and SuperNodes run on this machine, with TLS, keys and state folders.  Each node is behind its own proxy, which
counts bytes and, in the second half, limits each direction to 20 Mbit/s.  The app trains nothing (`benchmarks/rounds_app`):
a round consists of messages and compression.  The first round of a run is reported separately: the nodes then also fetch the
app and, if compressed, the whole model.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.measurement import print_table
from benchmarks.netshape.link import ShapedLink
from benchmarks.netshape.shaper import UNSHAPED, Shape
from deploy.federation import Federation
from deploy.program import signals_as_exits
from deploy.run_config import LaunchError

APP = Path(__file__).parent / "rounds_app"
SLOW = Shape(20e6 / 8, 0.01)
STC = "stc(density=0.0025)"
RUN_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: seconds of each round, and the bytes that all links carried up and down."""

    seconds: list[float]
    up_bytes: int
    down_bytes: int


def turns(federation: Federation, links: Sequence[ShapedLink], rounds: int, entries: int) -> Iterator[Turn]:
    """Yield a run of plain Flower, then a wrapped one."""
    for number, link in enumerate(("", STC)):
        out = federation.folder / f"seconds-{time.monotonic_ns()}-{number}"
        before = [(each.up_bytes, each.down_bytes) for each in links]
        run = federation.run(APP, {"rounds": rounds, "entries": entries, "link": link, "out": str(out)})
        if run.wait(RUN_TIMEOUT_S) != "finished:completed":
            run.stop()
            raise LaunchError(f"the run did not complete: {run.reason() or run.log()}")
        times = [float(line) for line in out.read_text().splitlines()]
        yield Turn(
            [end - begin for begin, end in pairwise(times)],
            sum(link.up_bytes - up for link, (up, _) in zip(links, before, strict=True)),
            sum(link.down_bytes - down for link, (_, down) in zip(links, before, strict=True)),
        )


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
    print("seconds a round, medians; megabytes a node and round, over all rounds, as the sockets carried them")
    return 0


def measure(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Yield the rows of the table."""
    with Federation(folder, options.nodes) as federation:
        federation.start_superlink()
        links = [ShapedLink(("127.0.0.1", federation.port)).start() for _ in range(options.nodes)]
        for node, link in zip(federation.nodes, links, strict=True):
            node.superlink = link.address
        federation.start_nodes()
        for words, shape in (("as fast as it goes", UNSHAPED), ("20 Mbit/s, 10 ms", SLOW)):
            for link in links:
                link.change(shape, shape)
            pairs = [list(turns(federation, links, options.rounds, options.entries)) for _ in range(options.turns)]
            ratio = median(median(wrapped.seconds[1:]) / median(plain.seconds[1:]) for plain, wrapped in pairs)
            for name, kind, of_plain in (("plain Flower", 0, 1.0), (STC, 1, ratio)):
                runs = [pair[kind] for pair in pairs]
                messages = options.nodes * options.rounds * options.turns * 1e6
                yield {
                    "links": words,
                    "app": name,
                    "first round": f"{median(run.seconds[0] for run in runs):.1f}",
                    "other rounds": f"{median(second for run in runs for second in run.seconds[1:]):.1f}",
                    "of plain": f"{of_plain:.2f}",
                    "MB up": f"{sum(run.up_bytes for run in runs) / messages:.2f}",
                    "MB down": f"{sum(run.down_bytes for run in runs) / messages:.2f}",
                }
        for link in links:
            link.close()


if __name__ == "__main__":
    sys.exit(main())
