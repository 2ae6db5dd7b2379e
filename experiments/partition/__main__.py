"""Show how partitions spread a dataset's training samples over the clients, before any training.

    python -m experiments.partition [--dataset digits] [--data-dir DIR] [--partition "classes(2)" "dirichlet(0.1)" ...]

Prints numbers and small maps of classes by client, and draws the same, side by side, to a PNG. A distance is that of a
client's distribution over the classes from that of the whole training split.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.partition.histogram_figure import draw
from experiments.partition.text_map import numbers, text_map
from fedcomp.data import Spread, load, parse_partition, partition_train, read_card, spread

CARDS = Path(__file__).resolve().parents[2] / "datasets"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and draw; return 0, or 2 after one sentence for arguments that cannot be used."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        if options.out.suffix != ".png":
            raise ValueError(f"--out is {str(options.out)!r}; the name of a .png file is needed")
        names, spreads = _spreads(options)
        figure = draw(spreads, names, f"{options.dataset}, {options.clients} clients, seed {options.seed}")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out)
    except OSError as error:
        print(f"partition: {options.out} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"partition: {error}", file=sys.stderr)
        return 2
    console.print(numbers(spreads, f"{options.dataset}, {options.clients} clients, seed {options.seed}"))
    for text, item in spreads.items():
        console.print(text_map(text, item, names, console.width))
    print(f"figure: {options.out}")
    return 0


def _spreads(options: argparse.Namespace) -> tuple[tuple[str, ...], dict[str, Spread]]:
    """Return the names of the classes, and the spread of each partition; check all arguments before the long work."""
    for text in options.partition:
        parse_partition(text)
    card = read_card(options.dataset, CARDS)
    dataset = load(card, options.data_dir)
    spreads = {
        text: spread(dataset.train.y, partition_train(dataset, text, options.clients, options.seed), card.num_classes)
        for text in options.partition
    }
    return card.classes, spreads


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.partition",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", default="digits", help="a card in datasets/; digits needs no files")
    parser.add_argument("--data-dir", default="", help="the folder with the dataset's files")
    parser.add_argument(
        "--partition", nargs="+", default=["classes(2)"], metavar="TEXT", help='such as "dirichlet(alpha=0.1)"'
    )
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/partition.png"), metavar="FILE.png")
    return parser


if __name__ == "__main__":
    sys.exit(main())
