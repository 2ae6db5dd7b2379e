"""The writer of each digit of MNIST: MNIST's own files with QMNIST's labels.  Yadav and Bottou, NeurIPS 2019.

QMNIST reconstructs MNIST from NIST's forms: its training samples are MNIST's, and its test samples start with MNIST's
10,000.  Its labels are rows of eight numbers: the first is the class, the third the writer.
"""

from collections.abc import Mapping

import numpy as np

from fedcomp.data import idx
from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError

COLUMNS = ("class", "series", "writer", "digit", "nist_class", "nist_index", "duplicate", "unused")


def read_split(card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return images, labels, and the card's columns, of three IDX files: images, labels, QMNIST's labels.

    Raises `DataError` if the two kinds of labels are of different samples, and for a column that QMNIST lacks.
    """
    images, labels, extended = contents
    x, y, _ = idx.read_split(card, {name: contents[name] for name in (images, labels)})
    table = idx.parse_idx(contents[extended], extended)
    if table.ndim != 2 or table.shape[1] != len(COLUMNS) or len(table) < len(y):
        raise DataError(f"{extended}: shape {table.shape}; at least {len(y)} rows of {len(COLUMNS)} are needed")
    table = table[: len(y)]
    different = np.flatnonzero(table[:, 0] != y)
    if len(different):
        raise DataError(f"{extended}: sample {different[0]} has another class than in {labels}; the same are needed")
    for name in card.groups:
        if name not in COLUMNS:
            raise DataError(f"{extended}: no column {name!r}; there are: {', '.join(COLUMNS)}")
    return Arrays(x, y, {name: table[:, COLUMNS.index(name)] for name in card.groups})
