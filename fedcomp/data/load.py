"""From a card to arrays: the one door to every dataset."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fedcomp.data import cifar, digits, huggingface, idx, npz
from fedcomp.data.card import Card
from fedcomp.data.dataset import Dataset, checked_split
from fedcomp.data.files import SAVED, find_folder, read_files

READERS: Mapping[str, Callable[[Card, Mapping[str, bytes]], tuple[NDArray[Any], NDArray[Any]]]] = {
    "idx": idx.read_split,
    "cifar-binary": cifar.read_split,
    "npz": npz.read_split,
}
"""Format -> reader of the verified files of a split."""


def load(card: Card, data_dir: str | Path | None = None) -> Dataset:
    """Return the card's dataset: from scikit-learn when embedded, else from `data_dir`, else from the Hugging Face hub.

    `data_dir` is the folder with the files as their authors publish them, or with what ``save_to_disk`` wrote, or its
    parent; an empty text is none.  Simulated clients ask again and again, so a process keeps what it has loaded, and
    the arrays are read-only.  Raises `DataError` that says which file, what was found and what is needed.
    """
    return _load(card, Path(data_dir).expanduser().absolute() if data_dir else None)


@lru_cache(maxsize=4)
def _load(card: Card, data_dir: Path | None) -> Dataset:
    if card.format == "sklearn-digits":
        return _dataset(card, *digits.read_splits(), where="scikit-learn's digits")
    if data_dir is None:
        return _dataset(card, *huggingface.read_hub(card), where="the Hugging Face hub")
    folder = find_folder(card, data_dir)
    if (folder / SAVED).is_file():
        return _dataset(card, *huggingface.read_saved(card, folder), where=str(folder))
    read = READERS[card.format]
    train = read(card, read_files(card, card.train, folder))
    test = read(card, read_files(card, card.test, folder))
    return _dataset(card, train, test, where=str(folder))


def _dataset(
    card: Card,
    train: tuple[NDArray[Any], NDArray[Any]],
    test: tuple[NDArray[Any], NDArray[Any]],
    where: str,
) -> Dataset:
    return Dataset(
        card,
        train=checked_split(card, *train, where=f"{where}, train"),
        test=checked_split(card, *test, where=f"{where}, test"),
    )
