"""List every compression method: settings, paper, and its measured size and error.

fedcomp methods
fedcomp methods --markdown > docs/reference/methods.md
"""

from collections.abc import Sequence

from fedcomp.commands import new_parser
from fedcomp.methods import markdown_lines, text_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the list; return 0."""
    parser = new_parser("fedcomp methods", __doc__)
    parser.add_argument("--markdown", action="store_true", help="print the page docs/reference/methods.md")
    for line in markdown_lines() if parser.parse_args(arguments).markdown else text_lines():
        print(line)
    return 0
