"""A partition on a terminal: numbers, and a map with one character for each class and client."""

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from fedcomp.data import Spread

SHADES = " ░▒▓█"
BARS = "▁▂▃▄▅▆▇█"


HEADS = (
    "Jensen-\nShannon",
    "Hellin-\nger",
    "classes:\nleast, mean,\nmost",
    "samples:\nleast,\nmedian, most",
    "Gini\nof\nsizes",
    "un-\nused",
)


def numbers(spreads: dict[str, Spread], title: str) -> Table:
    """Return a table with a row for each partition; distances are means over the clients."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("partition", overflow="fold")
    for head in HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for text, spread in spreads.items():
        table.add_row(Text(text), *_cells(spread))
    return table


def _cells(spread: Spread) -> tuple[str, ...]:
    classes, sizes = spread.classes, spread.sizes
    return (
        f"{spread.jensen_shannon.mean():.3f}",
        f"{spread.hellinger.mean():.3f}",
        f"{classes.min()}, {classes.mean():.1f}, {classes.max()}",
        f"{sizes.min():,}, {np.median(sizes):,.0f}, {sizes.max():,}",
        f"{spread.gini:.3f}",
        f"{spread.unused:,}",
    )


def text_map(title: str, spread: Spread, names: tuple[str, ...], width: int) -> Text:
    """Return a map at most `width` wide: a column for each client, a row for each class, and the sizes above as bars.

    The shade is the class's share of the client's samples, rounded to quarters, and visible for any share above 0. Clients
    beyond the width are left out, and the title says so.
    """
    margin = max(5, *map(len, names)) + 1
    shown = max(1, min(len(spread.counts), width - margin))
    left_out = f", the first {shown} of {len(spread.counts)} clients" if shown < len(spread.counts) else ""
    shares = spread.shares[:shown]
    levels = np.maximum(np.rint(shares * (len(SHADES) - 1)), shares > 0).astype(int)
    sizes = spread.sizes[:shown] / spread.sizes.max()
    bars = np.ceil(sizes * len(BARS)).astype(int) - 1
    lines = [f"{title}{left_out}", "size".rjust(margin - 1) + " " + "".join(BARS[bar] for bar in bars)]
    for code, name in enumerate(names):
        lines.append(name.rjust(margin - 1) + " " + "".join(SHADES[level] for level in levels[:, code]))
    return Text("\n".join(lines) + "\n", no_wrap=True)
