"""IDX, the format of MNIST: a magic number, big-endian dimensions, then the bytes.  LeCun et al., 1998."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card
from fedcomp.data.dataset import DataError

UBYTE = 0x08


def read_split(card: Card, contents: Mapping[str, bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (N, *shape) and labels (N,) of two IDX files, images first; grey images gain their channel."""
    (images_name, images), (labels_name, labels) = contents.items()
    x, y = parse_idx(images, images_name), parse_idx(labels, labels_name)
    if (1, *x.shape[1:]) == card.shape:
        x = x.reshape(-1, *card.shape)
    return x, y


def parse_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """Return the array of unsigned bytes in `data`, a read-only view of it; `name` is for errors.

    Raises `DataError` for another magic number, and for a length that is not what the dimensions promise.
    """
    if len(data) < 4:
        raise DataError(f"{name}: {len(data)} bytes; an IDX magic number needs 4")
    zeros, kind, rank = data[:2], data[2], data[3]
    if zeros != b"\0\0" or kind != UBYTE or rank == 0:
        raise DataError(
            f"{name}: magic number {data[:4].hex()}; IDX of unsigned bytes needs 0000{UBYTE:02x} and a rank"
        )
    head = 4 + 4 * rank
    if len(data) < head:
        raise DataError(f"{name}: {len(data)} bytes; the head of {rank} dimensions needs {head}")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", rank, 4))
    need = head + math.prod(shape)
    if len(data) != need:
        raise DataError(f"{name}: {len(data)} bytes; the dimensions {shape} need {need}")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
