"""Owners of samples: names become numbers, and a test split holds out whole owners."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.dataset import Arrays, DataError


def numbered(names: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Return a number for each of the `names` (N,): texts get numbers from 0 in sorted order, whole numbers stay.

    Samples with an empty name, such as recorded silence, go to all owners in turn.

    Raises:
        DataError: the names have another dtype or shape, or all are empty.

    """
    if names.ndim == 1 and np.issubdtype(names.dtype, np.integer):
        return names.astype(np.int64)
    if names.ndim != 1 or names.dtype.kind != "U":
        raise DataError(f"{where} of shape {names.shape} and dtype {names.dtype}; names or numbers (N,) are needed")
    named = names != ""
    values, codes = np.unique(names[named], return_inverse=True)
    if len(values) == 0:
        raise DataError(f"{where}: {len(names)} samples and no name; at least 1 is needed")
    numbers = np.empty(len(names), np.int64)
    numbers[named] = codes
    numbers[~named] = np.arange(np.count_nonzero(~named)) % len(values)
    return numbers


def hold_out(arrays: Arrays, column: str, every: int) -> tuple[Arrays, Arrays]:
    """Return train and test: test gets all samples of each `every`-th owner by `column`, in order of their numbers.

    No owner is in both, and the split is always the same.
    """
    held = np.unique(arrays.groups[column], return_inverse=True)[1] % every == every - 1
    return _rows(arrays, ~held), _rows(arrays, held)


def _rows(arrays: Arrays, rows: NDArray[np.bool_]) -> Arrays:
    return Arrays(arrays.x[rows], arrays.y[rows], {name: column[rows] for name, column in arrays.groups.items()})
