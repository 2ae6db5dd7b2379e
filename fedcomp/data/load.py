"""Loads a card's dataset as arrays from any source; files that differ from the authors' files by a byte are refused."""

import gzip
import hashlib
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedcomp.data.card import Card, CardFile
from fedcomp.data.dataset import Arrays, DataError, Dataset, Split, checked_split
from fedcomp.data.formats import READERS
from fedcomp.data.libraries import read_digits, read_hub, read_saved
from fedcomp.data.windows import read_text

SAVED = "dataset_dict.json"
"""The file that marks a folder written by Hugging Face's ``save_to_disk``."""


def load(card: Card, data_dir: str | Path | None = None) -> Dataset:
    """Return the card's dataset: an embedded one, or from `data_dir`, or from the Hugging Face hub.

    `data_dir` is the folder with the files as their authors publish them or as ``save_to_disk`` writes them, or its parent;
    None or an empty text means the hub.  The process caches the dataset, because simulated clients load it again and again.
    Its arrays are read-only.

    Raises `DataError` if a file is missing, damaged or does not fit the card.
    """
    return _load(card, Path(data_dir).expanduser().absolute() if data_dir else None)


@lru_cache(maxsize=4)
def _load(card: Card, data_dir: Path | None) -> Dataset:
    if card.format == "sklearn-digits":
        return _dataset(card, *read_digits(), where="scikit-learn's digits")
    if card.format == "text":
        return _dataset(card, *read_text(card), where="the text of the card")
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
    """Return only the training split, of the files in `data_dir`, as `load` does; the format is one of `READERS`."""
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


def find_folder(card: Card, data_dir: Path, published: str = "") -> Path:
    """Return the folder with the card's dataset: `data_dir`, or its child with the published name or the card's name.

    `published` is the folder's name for files that are published in a different folder.
    Raises `DataError` if no folder has the files; the text lists the folders, and how to get the files.
    """
    folders = list(dict.fromkeys((data_dir / (published or card.folder), data_dir / card.name, data_dir)))
    files = [file for file in card.train + card.test if file.folder == published]
    wanted = [name for file in files for name in (file.name, f"{file.name}.gz")] + [SAVED]
    for folder in folders:
        if any((folder / name).is_file() for name in wanted):
            return folder
    first = files[0].name if files else SAVED
    looked = ", ".join(str(folder) for folder in folders)
    raise DataError(f"{card.name}: no {first} in {looked}; {_how_to_get(card)}")


def read_file(card: Card, file: CardFile, folder: Path) -> bytes:
    """Return the content of `file`, from ``<name>`` or ``<name>.gz``; raise `DataError` for another size or md5."""
    path = folder / file.name
    packed = folder / f"{file.name}.gz"
    if not path.is_file() and not packed.is_file():
        raise DataError(f"{path} is missing, and so is {packed.name}; {_how_to_get(card)}")
    found = path if path.is_file() else packed
    try:
        with path.open("rb") if found is path else gzip.open(packed) as stream:
            data = stream.read(file.size + 1)  # one more, to notice a longer file without unpacking all of it
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{found} cannot be read ({error}); {_how_to_get(card)}") from None
    if len(data) != file.size:
        size = f"{len(data)}" if len(data) < file.size else f"more than {file.size}"
        raise DataError(f"{found} holds {size} bytes; {card.name} needs {file.size}: {_how_to_get(card)}")
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 != file.md5:
        raise DataError(f"{found} has md5 {md5}; {card.name} needs {file.md5}: {_how_to_get(card)}")
    return data


def read_files(card: Card, files: tuple[CardFile, ...], data_dir: Path) -> dict[str, bytes]:
    """Return the content of each of `files` by name, in their order, each from its folder under `data_dir`."""
    return {file.name: read_file(card, file, find_folder(card, data_dir, file.folder)) for file in files}


def _how_to_get(card: Card) -> str:
    hub = f", or leave data-dir empty to load {card.hub.id} from the Hugging Face hub" if card.hub else ""
    return f"get it from {card.source}{hub}"
