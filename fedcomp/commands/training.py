"""List every training plug-in: what it does, settings, paper, and what was measured.

fedcomp training
"""

import argparse
from collections.abc import Sequence

from fedcomp.training import text_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list; return 0."""
    argparse.ArgumentParser(
        prog="fedcomp training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    for line in text_lines():
        print(line)
    return 0
