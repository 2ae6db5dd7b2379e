"""Named arrays in one file: numpy's own archive (.npz), whose parts carry checksums, without pickle, written atomically."""

import json
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core.atomic_file import write_atomically

Arrays = dict[str, NDArray[Any]]

ARCHIVE_ERRORS = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What `read_archive` and `from_json` raise for damaged files; `RuntimeError` is zipfile's, for a flipped encryption bit."""


def write_archive(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `arrays` to `path`, which is at any moment the old file or the new one."""
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]  # names are no keywords


def read_archive(path: Path, names: Collection[str] = ()) -> Arrays:
    """Return the arrays in `path`, or those in `names` alone; raise one of `ARCHIVE_ERRORS` for a missing or damaged file."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in names or archive.files}


def octets(data: bytes) -> NDArray[np.uint8]:
    """Return `data` as an array, uint8, that shares its memory."""
    return np.frombuffer(data, np.uint8)


def to_json(value: object) -> NDArray[np.uint8]:
    """Return the JSON text of `value` as an array."""
    return octets(json.dumps(value).encode())


def from_json(array: NDArray[Any]) -> Any:
    """Return the value whose JSON text is in `array`; raise `ValueError` for any other content."""
    return json.loads(array.tobytes())
