"""Encode and decode times as multiples of a memcpy of the same vector, and bytes over the entropy bound.

    python -m benchmarks.codecs [--method "stc(density={density})"] [--repeats 25] [--entries 11200000 ...]

Each time is divided by a memcpy taken right before it, and the median of those ratios is shown: an absolute time means
nothing on a shared machine.  ``bytes/H`` divides the body by H = n H2(k/n) + k bits, the entropy of independent positions
and signs.  ``peak`` is the most memory that encode held beyond its arguments, over the vector's.
"""

import argparse
import gc
import math
import statistics
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import fedcomp
from benchmarks.measurement import paired_seconds, print_table
from fedcomp.core import Shapes

SIZES = {"1.2 M": 1_200_000, "11.2 M": 11_200_000, "25.6 M": 25_600_000}
DENSITIES = (25, 100, 400, 1000)


@dataclass(frozen=True, slots=True)
class CodecRow:
    """One method on one vector: multiples of memcpy, bytes, and extra memory over the vector's."""

    encode: float
    decode: float
    accumulate: float
    size: int
    peak: float


def measure(compressor: fedcomp.Compressor, n: int, repeats: int, shapes: Shapes = ()) -> CodecRow:
    """Return the medians of `repeats` paired ratios on Gaussian updates of `n` entries, in tensors of these `shapes`."""
    update = np.random.default_rng(0).standard_normal(n, np.float32)
    copy = np.empty_like(update)
    state = compressor.init(n)
    body = b""
    for _ in range(3):  # the residual of a sender that has run for a while
        body, state = compressor.encode(update, state, shapes=shapes)

    def encode() -> None:
        nonlocal body, state
        body, state = compressor.encode(update, state, shapes=shapes)

    def accumulate() -> None:
        compressor.entropy.decode(body, n=n).add_to(copy, 0.1)

    def memcpy() -> None:
        np.copyto(copy, update)

    def median(action: Callable[[], object]) -> float:
        return statistics.median(mine / base for base, mine in paired_seconds(memcpy, action, repeats))

    times = median(encode), median(lambda: compressor.decode(body, n)), median(accumulate)
    gc.collect()
    tracemalloc.start()
    held, _ = tracemalloc.get_traced_memory()
    encode()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return CodecRow(*times, len(body), (peak - held) / update.nbytes)


def entropy_bound(n: int, k: int) -> float:
    """Return H = n H2(k/n) + k in bytes."""
    p = k / n
    return (n * (-p * math.log2(p) - (1 - p) * math.log2(1 - p)) + k) / 8


def main() -> None:
    """Print one table row per size and density."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="stc(density={density})", help="{density} is filled in")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--entries", type=int, nargs="*", help="vector lengths, instead of 1.2 M, 11.2 M and 25.6 M")
    options = parser.parse_args()
    sizes = {f"{n:,}": n for n in options.entries} if options.entries else SIZES
    densities = DENSITIES if "{density}" in options.method else (1,)
    rows: list[dict[str, str]] = []
    for name, n in sizes.items():
        for inverse in densities:
            row = measure(fedcomp.parse(options.method.format(density=1 / inverse)), n, options.repeats)
            bound = entropy_bound(n, math.ceil(n / inverse)) if inverse > 1 else math.nan
            rows.append(
                {
                    "entries": name,
                    "density": f"1/{inverse}",
                    "encode x": f"{row.encode:.2f}",
                    "decode x": f"{row.decode:.2f}",
                    "accumulate x": f"{row.accumulate:.2f}",
                    "bytes": f"{row.size:,}",
                    "bytes/H": f"{row.size / bound:.4f}",
                    "peak": f"{row.peak:.3f}",
                }
            )
    print_table(f"{options.method}, multiples of memcpy", rows)


if __name__ == "__main__":
    main()
