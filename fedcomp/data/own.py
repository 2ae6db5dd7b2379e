"""A node's own samples, as on a real device: a folder with files and a card of the same kind as the run's card."""

import hashlib
import io
import json
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import write_atomically
from fedcomp.data.card import Card, CardFile, read_card
from fedcomp.data.dataset import Arrays, DataError, Split, checked_split
from fedcomp.data.formats import READERS
from fedcomp.data.load import load_train

SHARED_KEYS = ("shape", "mean", "std", "resize")
"""The entries that a node's own card and the run's card have in common, in addition to the classes."""
NO_FILE = CardFile("none", 0, 32 * "0")
"""A placeholder in a card whose file is not written yet."""


def load_own(card: Card, folder: str | Path) -> Split:
    """Return the samples of the training files in `folder`, for a run with `card`.

    Raises `ValueError` if the folder has no card of that name, and `DataError` if that card does not fit the run's card or the
    files.
    """
    folder = Path(folder).expanduser().absolute()
    own = read_card(card.name, folder)
    where = folder / f"{card.name}.toml"
    if own.format not in READERS:
        raise DataError(f"{where}: format {own.format!r}; own samples need files: {', '.join(sorted(READERS))}")
    for key in SHARED_KEYS:
        if getattr(own, key) != getattr(card, key):
            raise DataError(f"{where}: {key} {getattr(own, key)}; the run's card {card.name} has {getattr(card, key)}")
    if own.num_classes != card.num_classes:
        raise DataError(f"{where}: {own.num_classes} classes; the run's card {card.name} has {card.num_classes}")
    for index, (mine, runs) in enumerate(zip(own.classes, card.classes, strict=True)):
        if mine != runs:
            raise DataError(f"{where}: class {index} {mine!r}; the run's card {card.name} has {runs!r}")
    return load_train(own, folder)


def write_own(folder: Path, card: Card, x: NDArray[Any], y: NDArray[Any], *, over: bool = False) -> None:
    """Write samples `x` (N, *shape) and labels `y` (N,) as ``<name>.npz``, and a copy of `card` that describes this file.

    Each file is replaced atomically, the card last.
    Raises `DataError` if the arrays do not fit the card, or the folder has such files and `over` is false.
    """
    own = own_card(card)
    split = checked_split(own, Arrays(x, y), "the samples")
    stream = io.BytesIO()
    np.savez(stream, x=split.x, y=split.y)
    data = stream.getvalue()
    name = f"{card.name}.npz"
    file = CardFile(name, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
    files = {name: data, f"{card.name}.toml": to_toml(replace(own, train=(file,))).encode()}
    for target in files:
        if (folder / target).exists() and not over:
            raise DataError(f"{folder / target} exists already; an empty folder is needed")
    for target, content in files.items():  # another user than the node's may pack them
        write_atomically(folder / target, methodcaller("write", content), mode=0o644)


def own_card(card: Card) -> Card:
    """Return the card of a node's own samples for a run with `card`: an archive (.npz) of training samples, without columns."""
    return replace(
        card,
        format="npz",
        train=(NO_FILE,),
        test=(),
        hub=None,
        folder="",
        groups=(),
        test_every=None,
        text="",
        test_texts=0,
    )


def to_toml(card: Card) -> str:
    """Return a card without a hub as the text that `Card.read` reads; JSON's texts and numbers are TOML's."""
    keys = ("name", "title", "format", "shape", "resize", "classes", "mean", "std", "licence", "source")
    values = {key: getattr(card, key) for key in keys if getattr(card, key) is not None}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    files = [
        f"  {{ name = {json.dumps(file.name, ensure_ascii=False)}, size = {file.size}, md5 = {json.dumps(file.md5)} }},"
        for file in card.train
    ]
    text = "\n".join([*lines, "", "[files]", "train = [", *files, "]", ""])
    return text.replace("\x7f", "\\u007f")  # the one character that JSON leaves and TOML refuses
