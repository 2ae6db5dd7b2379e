"""Loading a card's dataset as arrays, from wherever it is."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError, Dataset, Split, checked_split
from fedcomp.data.files import SAVED, find_folder, read_files
from fedcomp.data.formats import READERS
from fedcomp.data.libraries import read_digits, read_hub, read_saved


def load(card: Card, data_dir: str | Path | None = None) -> Dataset:
    """Return the card's dataset: from scikit-learn if it is embedded, else from `data_dir`, else from the Hugging Face hub.

    `data_dir` is the folder with the files as their authors publish them or as ``save_to_disk`` writes them, or its parent;
    None or an empty text for the hub.  The process caches the dataset, since simulated clients load it again and again; its
    arrays are read-only.

    Raises `DataError` if a file is missing, damaged or does not fit the card.
    """
    return _load(card, Path(data_dir).expanduser().absolute() if data_dir else None)


@lru_cache(maxsize=4)
def _load(card: Card, data_dir: Path | None) -> Dataset:
    if card.format == "sklearn-digits":
        return _dataset(card, *read_digits(), where="scikit-learn's digits")
    if data_dir is None:
        return _dataset(card, *read_hub(card), where="the Hugging Face hub")
    folder = find_folder(card, data_dir)
    if (folder / SAVED).is_file():
        return _dataset(card, *read_saved(card, folder), where=str(folder))
    if not card.test and not card.test_every:
        raise DataError(f"{card.name}: its card lists no test files; a run needs a test split for evaluation")
    train, test = _train(card, data_dir)
    test = test or READERS[card.format](card, read_files(card, card.test, data_dir))
    return _dataset(card, train, test, where=str(folder))


def load_train(card: Card, data_dir: Path) -> Split:
    """Return only the training split, of the files in `data_dir`; the card's format is one of `READERS`.

    Raises `DataError` as `load` does.
    """
    return checked_split(card, _train(card, data_dir)[0], f"{find_folder(card, data_dir)}, train")


def _train(card: Card, data_dir: Path) -> tuple[Arrays, Arrays | None]:
    """Return the training files' arrays, and the held-out test arrays if the card has `test_every`."""
    train = READERS[card.format](card, read_files(card, card.train, data_dir))
    return hold_out(train, card.groups[0], card.test_every) if card.test_every else (train, None)


def hold_out(arrays: Arrays, column: str, every: int) -> tuple[Arrays, Arrays]:
    """Return train and test: test gets all samples of each `every`-th owner by `column`, in order of their numbers.

    No owner is in both, and the split is always the same.
    """
    held = np.unique(arrays.groups[column], return_inverse=True)[1] % every == every - 1
    train, test = (
        Arrays(arrays.x[rows], arrays.y[rows], {name: owners[rows] for name, owners in arrays.groups.items()})
        for rows in (~held, held)
    )
    return train, test


def _dataset(card: Card, train: Arrays, test: Arrays, where: str) -> Dataset:
    return Dataset(card, checked_split(card, train, f"{where}, train"), checked_split(card, test, f"{where}, test"))
