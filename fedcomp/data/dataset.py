"""What a loader gives: arrays that have been checked against the card, and the one error that says why not."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card


class DataError(ValueError):
    """A dataset is missing, damaged or not what its card says."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Samples and labels: `x` as stored, uint8 or float32 (N, *shape); `y` int64 (N,).  Both are read-only."""

    x: NDArray[np.uint8] | NDArray[np.float32]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.y)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A card with its two splits."""

    card: Card
    train: Split
    test: Split


def checked_split(card: Card, x: NDArray[Any], y: NDArray[Any], where: str) -> Split:
    """Return the split of the arrays that `where` held, made read-only.

    Floats become float32 and labels int64.  Raises `DataError` for another shape, dtype or class range than the card's.
    """
    if x.dtype != np.uint8:
        if not np.issubdtype(x.dtype, np.floating):
            raise DataError(f"{where}: samples of dtype {x.dtype}; {card.name} needs uint8 or floats")
        x = x.astype(np.float32, copy=False)
        if not np.isfinite(x).all():
            raise DataError(f"{where}: samples hold NaN or infinity; {card.name} needs finite numbers")
    if x.shape[1:] != card.shape:
        raise DataError(f"{where}: samples of shape {x.shape[1:]}; {card.name} needs {card.shape}")
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{where}: labels of shape {y.shape} and dtype {y.dtype}; whole numbers (N,) are needed")
    if len(x) != len(y) or len(x) == 0:
        raise DataError(f"{where}: {len(x)} samples and {len(y)} labels; as many of each are needed, at least 1")
    if y.min() < 0 or y.max() >= card.num_classes:
        raise DataError(f"{where}: labels from {y.min()} to {y.max()}; {card.name} needs 0 to {card.num_classes - 1}")
    y = y.astype(np.int64)
    x.setflags(write=False)
    y.setflags(write=False)
    return Split(x, y)
