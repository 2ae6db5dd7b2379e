"""IDX, the format of MNIST: a magic number, big-endian dimensions, then the numbers.  LeCun et al., 1998."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError

DTYPES: Mapping[int, np.dtype[Any]] = {0x08: np.dtype("u1"), 0x0C: np.dtype(">i4")}
"""The third byte of the magic number -> the dtype; the format has more, which no dataset here uses."""


def read_split(_card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return images and labels (N,) of two IDX files, images first."""
    (images_name, images), (labels_name, labels) = contents.items()
    return Arrays(parse_idx(images, images_name), parse_idx(labels, labels_name))


def parse_idx(data: bytes, name: str) -> NDArray[Any]:
    """Return the unsigned bytes or 32-bit integers in `data`, as a read-only view; `name` is for errors.

    Raises `DataError` for another magic number, and for a length that does not fit the dimensions.
    """
    if len(data) < 4:
        raise DataError(f"{name}: {len(data)} bytes; an IDX magic number needs 4")
    zeros, kind, rank = data[:2], data[2], data[3]
    if zeros != b"\0\0" or kind not in DTYPES or rank == 0:
        raise DataError(
            f"{name}: magic number {data[:4].hex()}; IDX of bytes or integers needs 000008 or 00000c and a rank"
        )
    head = 4 + 4 * rank
    if len(data) < head:
        raise DataError(f"{name}: {len(data)} bytes; the head of {rank} dimensions needs {head}")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", rank, 4))
    dtype = DTYPES[kind]
    need = head + dtype.itemsize * math.prod(shape)
    if len(data) != need:
        raise DataError(f"{name}: {len(data)} bytes; the dimensions {shape} need {need}")
    return np.frombuffer(data, dtype, offset=head).reshape(shape)
