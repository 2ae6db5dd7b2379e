"""Small datasets in the published formats, written by the tests that read them."""

import hashlib
import struct
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data.card import Card, CardFile, Hub


class MakeCard(Protocol):
    """The `make_card` fixture."""

    def __call__(self, **changes: Any) -> Card: ...


class Publish(Protocol):
    """The `publish` fixture."""

    def __call__(self, folder: Path, name: str, data: bytes) -> CardFile: ...


class Idx(Protocol):
    """The `idx_bytes` fixture."""

    def __call__(self, array: NDArray[np.uint8]) -> bytes: ...


@pytest.fixture
def make_card() -> MakeCard:
    """A card of 2x3 grey images in three classes, with the given changes."""

    def make(**changes: Any) -> Card:
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

    return make


@pytest.fixture
def publish() -> Publish:
    """Writes a file and returns its entry for a card."""

    def write(folder: Path, name: str, data: bytes) -> CardFile:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        return CardFile(name, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())

    return write


@pytest.fixture
def idx_bytes() -> Idx:
    """Converts an array to an IDX file."""

    def pack(array: NDArray[np.uint8]) -> bytes:
        return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()

    return pack


@pytest.fixture
def tiny_arrays() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Twelve images (12, 2, 3) and their labels."""
    rng = np.random.default_rng(5)
    return rng.integers(0, 256, (12, 2, 3), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 3


@pytest.fixture
def tiny_idx(
    tmp_path: Path,
    make_card: MakeCard,
    publish: Publish,
    idx_bytes: Idx,
    tiny_arrays: tuple[NDArray[np.uint8], NDArray[np.uint8]],
) -> tuple[Card, Path]:
    """A card and the parent of a folder ``tiny`` with ten training and two test images as IDX."""
    x, y = tiny_arrays
    folder = tmp_path / "tiny"
    return (
        make_card(
            format="idx",
            hub=None,
            train=(publish(folder, "x10", idx_bytes(x[:10])), publish(folder, "y10", idx_bytes(y[:10]))),
            test=(publish(folder, "x2", idx_bytes(x[10:])), publish(folder, "y2", idx_bytes(y[10:]))),
        ),
        tmp_path,
    )
