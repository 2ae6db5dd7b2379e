"""The slowest bodies that an attacker can send next to the slowest that honest senders make, for each codec.

    python -m benchmarks.hostile_bodies [--repeats 5] [--draws 40] [--entries 10000 65000 1200000 ...]

An update with the body is decoded, checked and added to a vector, as the server does.  Honest bodies come from every method
at several settings and on several updates (`tests/wire/specimens.py`); hostile ones are valid, and in forms that take long
for their entries (`tests/wire/adversaries.py`).  The slowest of each are timed in turn: the ratio is the median of the pairs,
and the budget is 5.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random

import numpy as np

from benchmarks.measurement import paired_seconds, print_table
from fedcomp.sync import decode_update
from fedcomp.wire import parse_single_frame
from tests.wire import adversaries, specimens
from tests.wire.specimens import Body

BUDGET = 5


def receiver(n: int, body: Body) -> Callable[[], None]:
    """Return what a server does with the body."""
    published, total = specimens.world(n).replica, np.zeros(n, np.float32)
    update = parse_single_frame(specimens.update(n, *body))
    return lambda: decode_update(update, published).change.add_to(total, 0.5)


def slowest(n: int, bodies: Iterable[Body]) -> dict[int, Body]:
    """Return the slowest of the bodies for each codec."""
    found: dict[int, tuple[float, Body]] = {}
    for body in bodies:
        receive = receiver(n, body)
        seconds = min(_seconds(receive) for _ in range(2))
        if seconds > found.get(body[0], (0.0, body))[0]:
            found[body[0]] = seconds, body
    return {codec: body for codec, (_, body) in sorted(found.items())}


def _seconds(action: Callable[[], None]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def compare(n: int, repeats: int, draws: int) -> Iterator[dict[str, object]]:
    """Yield a row for each codec that has hostile bodies."""
    honest = slowest(n, (specimens.MAKERS[number](n) for number in specimens.numbers(n)))
    hostile = slowest(
        n,
        (
            make(Random(draw), n)  # noqa: S311 - repeatable
            for make in adversaries.MAKERS
            for draw in range(draws)
        ),
    )
    for codec, body in hostile.items():
        pairs = paired_seconds(receiver(n, honest[codec]), receiver(n, body), repeats)
        yield {
            "entries": n,
            "codec": codec,
            "honest bytes": len(honest[codec][1]),
            "ms": f"{1000 * statistics.median(first for first, _ in pairs):.2f}",
            "hostile bytes": len(body[1]),
            "ratio": f"{statistics.median(second / first for first, second in pairs):.1f}",
        }


def main() -> None:
    """Print a table for each number of entries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="pairs of times for each codec")
    parser.add_argument("--draws", type=int, default=40, help="hostile bodies of each kind")
    parser.add_argument("--entries", type=int, nargs="+", default=[10_000, 65_000, 1_200_000], help="of the model")
    options = parser.parse_args()
    for n in options.entries:
        rows = list(compare(n, options.repeats, options.draws))
        print_table(f"decode time of hostile over honest bodies, at most {BUDGET}", rows)


if __name__ == "__main__":
    main()
