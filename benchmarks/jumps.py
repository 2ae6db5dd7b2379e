"""Jumps beside the deltas that they stand for: bytes, and the time to make and to follow one, in multiples of a memcpy.

    python -m benchmarks.jumps [--entries 11200000] [--density 0.0025] [--versions 100]
    python -m benchmarks.jumps --all  # a round whose nodes have missed every number of versions

Changes are Gaussian, each entry with a size of its own: some move in every version and most hardly ever, as in training.
"""

import argparse
import copy
import resource
import statistics
import time
from collections.abc import Iterator

import numpy as np

import fedcomp
from benchmarks.measurement import paired_seconds, print_table
from fedcomp.sync import Publisher, Replica, apply_frame, start_replica
from fedcomp.sync.jumps import Jumps
from fedcomp.wire import layout_of, parse_single_frame

REPEATS = 5


def logs(n: int, density: float, versions: int) -> Iterator[tuple[int, Publisher, Replica]]:
    """Yield (versions missed, publisher, a replica of its first version) after 1, 2, 5, 10, ... versions."""
    rng = np.random.default_rng(0)
    size = np.exp(rng.standard_normal(n, np.float32)) * np.float32(1e-3)
    arrays = {"w": rng.standard_normal(n, np.float32) * np.float32(0.05)}
    start = start_replica(layout_of(arrays), arrays)
    publisher = Publisher.begin(copy.deepcopy(start))
    stc = fedcomp.stc(density=density)
    shown = {count * 10**power for power in range(6) for count in (2, 5, 10)} | {versions}
    for version in range(1, versions + 1):
        publisher.publish(size * rng.standard_normal(n, np.float32), b"", stc, seed=version)
        if version in shown:
            yield version, publisher, start


def compare(n: int, density: float, versions: int) -> Iterator[dict[str, object]]:
    """Yield a row for each number of versions missed."""
    source = np.ones(n, np.float32)
    target = np.empty_like(source)
    for missed, publisher, start in logs(n, density, versions):
        replay = sum(frame.size for frame in publisher.history.frames())

        def make(publisher: Publisher = publisher) -> None:
            Jumps().along(publisher.history.frames(), publisher.replica)

        (jump,) = publisher.route(*start.place).frames
        held = [copy.deepcopy(start) for _ in range(REPEATS + 1)]

        def follow(jump: bytes = jump, held: list[Replica] = held) -> None:
            apply_frame(held.pop(), parse_single_frame(jump))

        times = [
            statistics.median(b / a for a, b in paired_seconds(lambda: np.copyto(target, source), action, REPEATS))
            for action in (make, follow)
        ]
        yield {
            "missed": missed,
            "deltas": f"{replay:,}",
            "jump": f"{len(jump):,}",
            "ratio": f"{replay / len(jump):.1f}",
            "make x": f"{times[0]:.1f}",
            "follow x": f"{times[1]:.1f}",
        }


def make_all(publisher: Publisher) -> str:
    """Return what a round costs whose nodes have missed every number of versions from 2 on; the fewest come first."""
    deltas, made = publisher.history.frames(), Jumps()
    begin_s = time.process_time()
    jumps = [made.along(deltas[since:], publisher.replica) for since in reversed(range(len(deltas) - 1))]
    seconds, size = time.process_time() - begin_s, sum(len(jump or b"") for jump in jumps)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return f"{len(jumps)} jumps, from every version: {seconds:.1f} s of one core, {size:,} bytes; {resident:,} MiB resident"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=11_200_000, help="of the model")
    parser.add_argument("--density", type=float, default=1 / 400, help="of the deltas")
    parser.add_argument("--versions", type=int, default=100, help="the most that are missed")
    parser.add_argument("--all", action="store_true", help="make one jump from every version")
    options = parser.parse_args()
    if options.all:
        *_, (_, publisher, _) = logs(options.entries, options.density, options.versions)
        print(make_all(publisher))
        return
    rows = list(compare(options.entries, options.density, options.versions))
    print_table(f"stc(density={options.density:g}), {options.entries:,} entries; times in multiples of a memcpy", rows)


if __name__ == "__main__":
    main()
