"""A node's own samples: a folder with a card of its own beside the files, as a real device has it.

The card is ``<folder>/<dataset>.toml``, in the form of every card, for the files that lie there.  It must describe
samples of the kind that the run's card describes, for the model is the run's; it needs no test files.
"""

import hashlib
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card, CardFile, read_card
from fedcomp.data.dataset import Arrays, DataError, Split, checked_split
from fedcomp.data.load import READERS, load_train

AGREED = ("shape", "mean", "std", "resize")
"""What a node's own card must say as the run's does, beside the classes."""
NO_FILE = CardFile("none", 0, 32 * "0")
"""Stands in a card until there is a file."""


def load_own(card: Card, folder: str | Path) -> Split:
    """Return the samples in `folder`, for a run with `card`: those of the training files of the folder's own card.

    Raises `ValueError` where there is no such card, and `DataError` where it does not fit the run's or the files do not
    fit it.
    """
    place = Path(folder).expanduser().absolute()
    own = read_card(card.name, place)
    where = place / f"{card.name}.toml"
    if own.format not in READERS:
        raise DataError(f"{where}: format {own.format!r}; own samples need files: {', '.join(sorted(READERS))}")
    for key in AGREED:
        if getattr(own, key) != getattr(card, key):
            raise DataError(f"{where}: {key} {getattr(own, key)}; the run's card {card.name} has {getattr(card, key)}")
    if own.classes != card.classes:
        raise DataError(f"{where}: {_classes(own, card)}; the run's card {card.name} has {_classes(card, own)}")
    return load_train(own, place)


def write_own(folder: Path, card: Card, x: NDArray[Any], y: NDArray[Any], *, over: bool = False) -> None:
    """Write samples `x` (N, *shape) and labels `y` (N,) as ``<name>.npz``, and beside it their card: `card`, made theirs.

    The files are made before they get their names, the card's last.  Raises `DataError` for arrays that do not fit the
    card, and where the folder has such files, unless they may be written `over`.
    """
    own = replace(card, format="npz", train=(NO_FILE,), test=(), hub=None, folder="", groups=(), test_every=None)
    split = checked_split(own, Arrays(x, y), "the samples")
    stream = io.BytesIO()
    np.savez(stream, x=split.x, y=split.y)
    data = stream.getvalue()
    name = f"{card.name}.npz"
    file = CardFile(name, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
    files = {name: data, f"{card.name}.toml": to_toml(replace(own, train=(file,))).encode()}
    for there in files:
        if (folder / there).exists() and not over:
            raise DataError(f"{folder / there} is there already; an empty folder is needed")
    folder.mkdir(parents=True, exist_ok=True)
    for target, content in files.items():
        partial = folder / f".{target}.partial"
        partial.write_bytes(content)
        os.replace(partial, folder / target)  # noqa: PTH105


def to_toml(card: Card) -> str:
    """Return the text of a card that has files and no hub, as `Card.read` reads it; JSON's texts and numbers are TOML's."""
    keys = ("name", "title", "format", "shape", "resize", "classes", "mean", "std", "licence", "source")
    values = {key: getattr(card, key) for key in keys if getattr(card, key) is not None}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    files = [
        f"  {{ name = {json.dumps(file.name, ensure_ascii=False)}, size = {file.size}, md5 = {json.dumps(file.md5)} }},"
        for file in card.train
    ]
    return "\n".join([*lines, "", "[files]", "train = [", *files, "]", ""])


def _classes(card: Card, other: Card) -> str:
    """Return what tells the classes of `card` from those of `other`."""
    if card.num_classes != other.num_classes:
        return f"{card.num_classes} classes"
    at = next(at for at, names in enumerate(zip(card.classes, other.classes, strict=True)) if len(set(names)) > 1)
    return f"class {at} {card.classes[at]!r}"
