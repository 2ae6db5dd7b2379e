"""Small datasets in the published formats, written by the tests that read them."""

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card, CardFile, Hub

Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def make_card(**changes: Any) -> Card:
    """Return a card of 2x3 grey images in three classes, with the given changes."""
    settings: dict[str, Any] = {
        "name": "tiny",
        "title": "Tiny",
        "format": "huggingface",
        "shape": (1, 2, 3),
        "classes": ("a", "b", "c"),
        "mean": (0.5,),
        "std": (0.25,),
        "licence": "none",
        "source": "https://example.org/tiny",
        "hub": Hub("someone/tiny"),
    }
    return Card(**(settings | changes))


def publish(folder: Path, name: str, data: bytes) -> CardFile:
    """Write a file and return its entry for a card."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return CardFile(name, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())


def idx_bytes(array: NDArray[Any]) -> bytes:
    """Return an array of bytes, or of 32-bit integers, as an IDX file."""
    kind = 8 if array.dtype == np.uint8 else 12
    return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.tobytes()
