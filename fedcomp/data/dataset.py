"""Datasets: arrays that have been checked against their card."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card


class DataError(ValueError):
    """A dataset is missing, is damaged, or does not match its card."""


NO_GROUPS: Mapping[str, NDArray[Any]] = MappingProxyType({})


class Arrays(NamedTuple):
    """The unchecked content of a split's files: samples, labels, and columns that name the owner of each sample."""

    x: NDArray[Any]
    y: NDArray[Any]
    groups: Mapping[str, NDArray[Any]] = NO_GROUPS


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Samples and labels: `x` as stored, uint8 or float32 (N, *shape); `y` int64 (N,).  All arrays are read-only.

    `groups` holds the card's columns of owners, int64 (N,), a number for each writer, speaker or the like.
    """

    x: NDArray[np.uint8] | NDArray[np.float32]
    y: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A card with its two splits."""

    card: Card
    train: Split
    test: Split


def checked_split(card: Card, arrays: Arrays, where: str) -> Split:
    """Return `arrays` as a read-only split; `where` names their origin in errors.

    Grey images get a channel dimension, floats become float32, labels and columns int64.
    Raises `DataError` if a shape, dtype, range of labels or column does not match the card.
    """
    x, y, groups = arrays
    if x.dtype != np.uint8:
        if not np.issubdtype(x.dtype, np.floating):
            raise DataError(f"{where}: samples of dtype {x.dtype}; {card.name} needs uint8 or floats")
        with np.errstate(over="ignore"):  # refused as infinity
            x = x.astype(np.float32, copy=False)
        if not np.isfinite(x).all():
            raise DataError(f"{where}: samples hold NaN or infinity; {card.name} needs finite numbers")
    if (1, *x.shape[1:]) == card.shape:
        x = x.reshape(-1, *card.shape)
    if x.shape[1:] != card.shape:
        raise DataError(f"{where}: samples of shape {x.shape[1:]}; {card.name} needs {card.shape}")
    y = _whole_numbers(y, f"{where}: labels")
    if len(x) != len(y) or len(x) == 0:
        raise DataError(f"{where}: {len(x)} samples and {len(y)} labels; as many of each are needed, at least 1")
    if y.min() < 0 or y.max() >= card.num_classes:
        raise DataError(f"{where}: labels from {y.min()} to {y.max()}; {card.name} needs 0 to {card.num_classes - 1}")
    columns = {name: _whole_numbers(column, f"{where}: {name}") for name, column in groups.items()}
    if set(columns) != set(card.groups):
        there, needed = ", ".join(columns) or "none", ", ".join(card.groups) or "none"
        raise DataError(f"{where}: columns {there} in addition to the labels; {card.name} needs {needed}")
    for name, column in columns.items():
        if len(column) != len(y):
            raise DataError(f"{where}: {len(y)} labels and {len(column)} of {name}; as many of each are needed")
    for array in (x, y, *columns.values()):
        array.setflags(write=False)
    return Split(x, y, MappingProxyType(columns))


def _whole_numbers(array: NDArray[Any], what: str) -> NDArray[np.int64]:
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{what} of shape {array.shape} and dtype {array.dtype}; whole numbers (N,) are needed")
    return array.astype(np.int64)
