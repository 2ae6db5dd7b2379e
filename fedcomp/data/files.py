"""Published files: find their folder, read each, and refuse any that differs from the authors' by a byte."""

import gzip
import hashlib
import zlib
from pathlib import Path

from fedcomp.data.card import Card, CardFile
from fedcomp.data.dataset import DataError

SAVED = "dataset_dict.json"
"""The file that marks a folder written by Hugging Face's ``save_to_disk``."""


def find_folder(card: Card, data_dir: Path, published: str = "") -> Path:
    """Return the folder with the card's dataset: `data_dir`, or its child named as published or as the card.

    `published` is the folder's name for files that are published in another folder than the rest.
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
    """Return the content of `file`, from ``<name>`` or ``<name>.gz``; reads at most one byte more than its size.

    Raises `DataError` if the file is missing, or its size or md5 is not the card's.
    """
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
