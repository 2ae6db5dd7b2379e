"""Show how partitions spread a dataset's training samples over the clients, before any training.

    fedcomp partition [--dataset digits] [--data-dir DIR] [--partition "classes(2)" "dirichlet(0.1)" ...]

Prints numbers, and draws maps of classes by client, side by side. A distance is that of a client's distribution
over the classes from that of the whole training split.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.figure_file import format_of, literal_text, write
from clients.samples import own_card
from experiments.command import command, new_parser, usage
from fedcomp.commands import path_of
from fedcomp.data import Spread, load, parse_partition, partition_train, spread

MAX_COLUMNS = 3
"""The most partitions in one row of the figure."""
COLUMN_SPACE = 8
"""The least width of a column: heads and numbers stand apart."""


def numbers(spreads: Mapping[str, Spread]) -> str:
    """Return a table with a row for each partition below its name, and lines that explain it; 80 columns suffice."""
    rows = [
        {
            "Jensen-Shannon": f"{one.jensen_shannon.mean():.3f}",
            "Hellinger": f"{one.hellinger.mean():.3f}",
            "classes": f"{one.classes.min()}/{one.classes.mean():.1f}/{one.classes.max()}",
            "samples": f"{one.sizes.min():,}/{np.median(one.sizes):,.0f}/{one.sizes.max():,}",
            "Gini": f"{one.gini:.3f}",
            "unused": f"{one.unused:,}",
        }
        for one in spreads.values()
    ]
    explained = (
        "Distances: means over the clients. Classes of a client: least, mean, most.\n"
        "Samples: least, median, most; the Gini coefficient is that of their numbers."
    )
    head, *lines = pd.DataFrame(rows).to_string(index=False, col_space=COLUMN_SPACE).splitlines()
    named = [part for text, line in zip(spreads, lines, strict=True) for part in (text, line)]
    return "\n".join([head, *named, "", explained])


def draw(spreads: Mapping[str, Spread], names: Sequence[str], title: str) -> Figure:
    """Return a figure with a panel for each partition: its classes by client as a heat map, the sizes as bars above.

    `names` are those of the classes.
    """
    down = -(-len(spreads) // MAX_COLUMNS)
    across = -(-len(spreads) // down)
    height = 2.2 + 0.22 * len(names)
    figure = Figure(figsize=(1.6 + 4.6 * across, 0.6 + height * down), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    heights = [1, 0.16 * len(names) + 0.8] * down
    panels = figure.subplots(2 * down, across, squeeze=False, height_ratios=heights, sharex="col")
    colors = ListedColormap(colormaps["YlGnBu"](np.linspace(0.12, 1, 256))).with_extremes(bad="white")
    # On a root scale a share of 10 %, as in ten even classes, still differs from one of 1 %.
    norm = PowerNorm(0.5, vmin=0, vmax=100)
    for at, (text, one) in enumerate(spreads.items()):
        row, column = divmod(at, across)
        above, below = panels[2 * row : 2 * row + 2, column]
        above.bar(np.arange(len(one.sizes)), one.sizes, width=1.0, color="#0072b2", linewidth=0)
        above.set_ylim(bottom=0)
        above.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        above.set_title(f"{text}\nJensen-Shannon {one.jensen_shannon.mean():.2f}, Gini {one.gini:.2f}", fontsize=9)
        shares = np.ma.masked_equal(100 * one.shares.T, 0)
        image = below.imshow(shares, cmap=colors, norm=norm, aspect="auto", interpolation="nearest")
        below.set_xlabel("client")
        below.tick_params(labelbottom=True)
        below.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        below.set_yticks(range(len(names)), [""] * len(names) if column else names, fontsize=8)
        if not column:
            above.set_ylabel("samples")
            below.set_ylabel("class")
    for empty in panels.reshape(down, 2, across).swapaxes(1, 2).reshape(-1, 2)[len(spreads) :].flat:
        empty.remove()
    bar = figure.colorbar(image, ax=figure.axes, label="% of the client's samples\n(white: none)", pad=0.01)
    bar.set_ticks([1, 10, 25, 50, 75, 100])
    return figure


def run(options: argparse.Namespace) -> None:
    """Print and draw."""
    title = f"{options.dataset}, {options.clients} clients, seed {options.seed}"
    with usage():
        format_of(options.out)
        for text in options.partition:  # all arguments before the long work
            parse_partition(text)
        card = own_card(options.dataset)
        dataset = load(card, options.data_dir)
        spreads = {
            text: spread(
                dataset.train.y, partition_train(dataset, text, options.clients, options.seed), card.num_classes
            )
            for text in options.partition
        }
        with literal_text():  # names of classes come from a card
            write(draw(spreads, card.classes, title), options.out)
    print(f"{title}\n\n{numbers(spreads)}\n")
    print(f"figure: {options.out}")


PARSER = new_parser("fedcomp partition", __doc__)
PARSER.add_argument("--dataset", default="digits", help="a card in datasets/; embedded ones need no files")
PARSER.add_argument("--data-dir", default="", help="the folder with the dataset's files")
PARSER.add_argument(
    "--partition", nargs="+", default=["classes(2)"], metavar="TEXT", help='such as "dirichlet(alpha=0.1)"'
)
PARSER.add_argument("--clients", type=int, default=100)
PARSER.add_argument("--seed", type=int, default=0)
PARSER.add_argument(
    "--out", type=path_of, default=Path("runs/partition.png"), metavar="FILE", help=".png, .svg or .pdf"
)
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
