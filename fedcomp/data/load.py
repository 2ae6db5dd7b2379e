"""Loading a card's dataset as arrays, from wherever it is."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from fedcomp.data import cifar, digits, huggingface, idx, npz, qmnist
from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError, Dataset, Split, checked_split
from fedcomp.data.files import SAVED, find_folder, read_files
from fedcomp.data.owners import hold_out

READERS: Mapping[str, Callable[[Card, Mapping[str, bytes]], Arrays]] = {
    "idx": idx.read_split,
    "qmnist": qmnist.read_split,
    "cifar-binary": cifar.read_split,
    "npz": npz.read_split,
}
"""Format -> reader of the verified files of a split; `checked_split` checks the arrays that it returns."""


def load(card: Card, data_dir: str | Path | None = None) -> Dataset:
    """Return the card's dataset: from scikit-learn if it is embedded, else from `data_dir`, else from the Hugging Face hub.

    The process caches the dataset, since simulated clients load it again and again; its arrays are read-only.

    Args:
        card: describes the dataset.
        data_dir: the folder with the files as their authors publish them or as ``save_to_disk`` writes them, or its parent;
            None or an empty text for the hub.

    Raises:
        DataError: a file is missing, damaged or does not fit the card.

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


def _dataset(card: Card, train: Arrays, test: Arrays, where: str) -> Dataset:
    return Dataset(
        card,
        train=checked_split(card, train, f"{where}, train"),
        test=checked_split(card, test, f"{where}, test"),
    )
