"""From a card to arrays: the one door to every dataset."""

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
"""Format -> reader of the verified files of a split; what it returns is checked later."""


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
    if not card.test and not card.test_every:
        raise DataError(f"{card.name}: its card lists no test files; a run needs a test split to be evaluated on")
    train, test = _train(card, data_dir)
    test = test or READERS[card.format](card, read_files(card, card.test, data_dir))
    return _dataset(card, train, test, where=str(folder))


def load_train(card: Card, data_dir: Path) -> Split:
    """Return the training split alone, of the files in `data_dir`; raises `DataError` as `load` does.

    The card's format is one of `READERS`.
    """
    return checked_split(card, _train(card, data_dir)[0], f"{find_folder(card, data_dir)}, train")


def _train(card: Card, data_dir: Path) -> tuple[Arrays, Arrays | None]:
    """Return what the training files hold, and what of it is held out to test, if the card says so."""
    train = READERS[card.format](card, read_files(card, card.train, data_dir))
    return hold_out(train, card.groups[0], card.test_every) if card.test_every else (train, None)


def _dataset(card: Card, train: Arrays, test: Arrays, where: str) -> Dataset:
    return Dataset(
        card,
        train=checked_split(card, train, f"{where}, train"),
        test=checked_split(card, test, f"{where}, test"),
    )
