"""Write and check the folder of a node's own samples, for runs with partition = "own()".

    fedcomp data share CARD.toml --partition "classes(2)" --nodes 3 --out DIR
    fedcomp data pack CARD.toml SAMPLES.npz --out FOLDER
    fedcomp data check CARD.toml FOLDER

For example, in fedcomp's folder: fedcomp data share datasets/digits.toml --nodes 3 --out shares

CARD.toml is the run's card, in datasets/.  `share` divides a known dataset into DIR/node-0, DIR/node-1, ..., for trials.
`pack` writes a device's own arrays, x and y of an .npz archive.  `check` reports the samples that a run would find.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedcomp.commands import new_parser, path_of
from fedcomp.data.card import Card
from fedcomp.data.formats import read_npz
from fedcomp.data.load import load
from fedcomp.data.own import load_own, own_card, write_own
from fedcomp.data.partition import partition_train
from fedcomp.data.partition_text import parse_partition


def share(card: Card, data_dir: str, partition: str, nodes: int, seed: int, out: Path) -> list[str]:
    """Write the samples of each node to ``<out>/node-<number>``; return a line of `check` for each.

    Raises `ValueError`, before anything is written, for a partition that the samples do not fit.
    """
    if parse_partition(partition).skews:
        raise ValueError(f"partition {partition!r} skews features; samples are written without skews")
    dataset = load(card, data_dir or None)
    parts = partition_train(dataset, partition, nodes, seed)
    folders = [out / f"node-{number}" for number in range(nodes)]
    for folder in folders:
        if folder.exists():
            raise ValueError(f"{folder} exists already; a new folder is needed")
    lines: list[str] = []
    for number, (folder, rows) in enumerate(zip(folders, parts, strict=True)):
        source = f"share {number} of {nodes} by {partition}, seed {seed}, of {card.source}"
        write_own(folder, replace(card, source=source), dataset.train.x[rows], dataset.train.y[rows])
        lines.append(check(card, folder))
    return lines


def pack(card: Card, samples: Path, out: Path, *, over: bool) -> str:
    """Write the arrays x and y of the archive `samples` to `out`; return the line of `check`."""
    plain = replace(own_card(card), licence="the owner's", source="this node's own samples")
    arrays = read_npz(plain, {samples.name: samples.read_bytes()})
    write_own(out, plain, arrays.x, arrays.y, over=over)
    return check(card, out)


def check(card: Card, folder: Path) -> str:
    """Return a line that counts the samples in `folder` for a run with `card`; raises `ValueError` if it would refuse them."""
    labels = load_own(card, folder).y
    return f"{folder}: {len(labels)} samples of {len(np.unique(labels))} of {card.num_classes} classes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 2 after one sentence about the error."""
    options = _parser().parse_args(arguments)
    try:
        card = Card.read(options.card)
        if options.what == "share":
            lines = share(card, options.data_dir, options.partition, options.nodes, options.seed, options.out)
        elif options.what == "pack":
            _check_other(options.out, card.name, (options.card, options.samples))
            lines = [pack(card, options.samples, options.out, over=options.over)]
        else:
            lines = [check(card, options.folder)]
    except (ModuleNotFoundError, OSError, ValueError) as error:
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        print(f"data: {text}", file=sys.stderr)
        return 2
    print(*lines, sep="\n")  # last: a reader that ends, such as `head`, must not keep files from being written
    return 0


def _check_other(out: Path, name: str, read: Sequence[Path]) -> None:
    """Raise `ValueError` if `pack` would write over one of the files that it has `read`."""
    for target in (out / f"{name}.toml", out / f"{name}.npz"):
        if target.exists() and any(target.samefile(each) for each in read):
            raise ValueError(f"{target} would be both read and written; another --out is needed")


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("fedcomp data", __doc__)
    kinds = parser.add_subparsers(dest="what", required=True, metavar="share|pack|check")
    sharing = kinds.add_parser("share", help="divide a known dataset, one folder for each node")
    packing = kinds.add_parser("pack", help="write a device's own arrays")
    checking = kinds.add_parser("check", help="report the samples that a run would find in a folder")
    for one in (sharing, packing, checking):
        one.add_argument("card", type=path_of, metavar="CARD.toml", help="the run's card, in datasets/")
    sharing.add_argument("--partition", default="iid()", metavar="TEXT", help='as "dirichlet(alpha=0.1)"')
    sharing.add_argument("--nodes", type=int, required=True)
    sharing.add_argument("--seed", type=int, default=0)
    sharing.add_argument("--data-dir", default="", help="the folder of the dataset's own files")
    packing.add_argument("samples", type=path_of, metavar="SAMPLES.npz", help="arrays x (N, *shape) and y (N,)")
    packing.add_argument("--over", action="store_true", help="write over what was packed before")
    for one in (sharing, packing):
        one.add_argument("--out", type=path_of, required=True, metavar="FOLDER")
    checking.add_argument("folder", type=path_of, metavar="FOLDER")
    return parser


if __name__ == "__main__":
    sys.exit(main())
