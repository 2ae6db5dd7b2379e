"""QMNIST's labels with MNIST's files: the columns by hand, and labels of other samples."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data.card import Card
from fedcomp.data.dataset import DataError
from fedcomp.data.qmnist import read_split

ROWS = [[2, 4, 2154, 59, 35, 229421, 0, 0], [0, 0, 12, 0, 30, 7, 0, 0], [1, 4, 2154, 65, 34, 238481, 0, 0]]


@pytest.fixture
def contents(idx_bytes: Callable[[NDArray[np.uint8]], bytes]) -> dict[str, bytes]:
    """Two images, their labels, and three rows of QMNIST, since QMNIST has more test samples."""
    return {
        "images": idx_bytes(np.arange(12, dtype=np.uint8).reshape(2, 2, 3)),
        "labels": idx_bytes(np.array([2, 0], np.uint8)),
        "extended": table(ROWS),
    }


def table(rows: list[list[int]]) -> bytes:
    """Return the rows as IDX of integers."""
    return struct.pack(">HBB2I", 0, 12, 2, len(rows), len(rows[0])) + np.array(rows, ">i4").tobytes()


def test_the_third_column_is_the_writer(make_card: Callable[..., Card], contents: dict[str, bytes]) -> None:
    x, y, groups = read_split(make_card(groups=("writer", "series")), contents)
    assert x.shape == (2, 2, 3)
    assert y.tolist() == [2, 0]
    assert {name: column.tolist() for name, column in groups.items()} == {"writer": [2154, 12], "series": [4, 0]}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([ROWS[0], [1, *ROWS[1][1:]]], "extended: sample 1 has another class than in labels"),
        (ROWS[:1], r"extended: shape \(1, 8\); at least 2 rows of 8 are needed"),
        ([row[:7] for row in ROWS], r"extended: shape \(3, 7\); at least 2 rows of 8"),
    ],
)
def test_labels_of_other_samples_are_refused(
    make_card: Callable[..., Card], contents: dict[str, bytes], rows: list[list[int]], expected: str
) -> None:
    with pytest.raises(DataError, match=expected):
        read_split(make_card(groups=("writer",)), contents | {"extended": table(rows)})


def test_an_error_about_a_missing_column_lists_the_columns(
    make_card: Callable[..., Card], contents: dict[str, bytes]
) -> None:
    with pytest.raises(DataError, match="extended: no column 'school'; there are: class, series, writer"):
        read_split(make_card(groups=("school",)), contents)
