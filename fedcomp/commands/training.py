"""List every training plug-in: what it does, settings, paper, and what was measured.

fedcomp training
"""

from collections.abc import Sequence

from fedcomp.commands import new_parser
from fedcomp.training import text_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list; return 0."""
    new_parser("fedcomp training", __doc__).parse_args(arguments)
    for line in text_lines():
        print(line)
    return 0
