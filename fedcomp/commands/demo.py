"""Train on 20 simulated nodes, as plain Flower and with compressors, and compare bytes and accuracy.

    fedcomp demo                                    # plain Flower and three compressors; half a minute
    fedcomp demo "stc(density=0.01)" --rounds 100

It needs numpy and Flower alone: its data is made by code.
"""

import sys
from collections.abc import Sequence

from fedcomp.commands import new_parser
from fedcomp.flower.demo import report

METHODS = ("auto()", "eden(bits=1)", "stc(density=0.04)")
ROUNDS = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each run.  Return 0, or 1 after one sentence about what is wrong."""
    parser = new_parser("fedcomp demo", __doc__)
    parser.add_argument(
        "methods", nargs="*", default=METHODS, metavar="METHOD", help=f"both ways (default: {' '.join(METHODS)})"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        for line in report(options.methods, options.rounds):
            print(line, flush=True)
    except (RuntimeError, ValueError) as error:
        print(f"fedcomp: demo: {error}", file=sys.stderr)
        return 1
    return 0
