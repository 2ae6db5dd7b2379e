"""Readers of the file formats: the verified files of a split -> arrays, which `checked_split` checks against the card."""

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import DAMAGE
from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError

IDX_DTYPES: Mapping[int, np.dtype[Any]] = {0x08: np.dtype("u1"), 0x0C: np.dtype(">i4")}
"""The third byte of IDX's magic number -> the dtype; no dataset here uses the other dtypes of the format."""
QMNIST_COLUMNS = ("class", "series", "writer", "digit", "nist_class", "nist_index", "duplicate", "unused")


def parse_idx(data: bytes, name: str) -> NDArray[Any]:
    """Return the unsigned bytes or 32-bit integers in an IDX file, as a read-only view; `name` is for errors.

    The file consists of a magic number, big-endian dimensions, and the numbers (LeCun et al., 1998).  Raises `DataError` for
    another magic number, and for a length that does not fit the dimensions.
    """
    if len(data) < 4:
        raise DataError(f"{name}: {len(data)} bytes; an IDX magic number needs 4")
    zeros, kind, rank = data[:2], data[2], data[3]
    if zeros != b"\0\0" or kind not in IDX_DTYPES or rank == 0:
        raise DataError(
            f"{name}: magic number {data[:4].hex()}; IDX of bytes or integers needs 000008 or 00000c and a rank"
        )
    head = 4 + 4 * rank
    if len(data) < head:
        raise DataError(f"{name}: {len(data)} bytes; the head of {rank} dimensions needs {head}")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", rank, 4))
    dtype = IDX_DTYPES[kind]
    need = head + dtype.itemsize * math.prod(shape)
    if len(data) != need:
        raise DataError(f"{name}: {len(data)} bytes; the dimensions {shape} need {need}")
    return np.frombuffer(data, dtype, offset=head).reshape(shape)


def read_idx(_card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return images and labels of two IDX files, images first."""
    images, labels = (parse_idx(data, name) for name, data in contents.items())
    return Arrays(images, labels)


def read_qmnist(card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return images, labels, and the card's columns, of three IDX files: MNIST's images and labels, QMNIST's labels.

    QMNIST names the writer of each digit (Yadav and Bottou, NeurIPS 2019): its labels are rows of `QMNIST_COLUMNS`, and its
    test samples start with MNIST's 10,000.  Raises `DataError` if the two kinds of labels belong to different samples, and for
    a column that QMNIST lacks.
    """
    (images, x), (labels, y), (extended, rows) = contents.items()
    arrays = read_idx(card, {images: x, labels: y})
    table = parse_idx(rows, extended)
    if table.ndim != 2 or table.shape[1] != len(QMNIST_COLUMNS) or len(table) < len(arrays.y):
        found, need = table.shape, f"at least {len(arrays.y)} rows of {len(QMNIST_COLUMNS)}"
        raise DataError(f"{extended}: shape {found}; {need} are needed")
    table = table[: len(arrays.y)]
    different = np.flatnonzero(table[:, 0] != arrays.y)
    if len(different):
        raise DataError(f"{extended}: sample {different[0]} has another class than in {labels}; the same are needed")
    for name in card.groups:
        if name not in QMNIST_COLUMNS:
            raise DataError(f"{extended}: no column {name!r}; there are: {', '.join(QMNIST_COLUMNS)}")
    return Arrays(arrays.x, arrays.y, {name: table[:, QMNIST_COLUMNS.index(name)] for name in card.groups})


def read_cifar(card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return images (N, *shape) and labels (N,) of files in CIFAR's binary version, in their order.

    A record is one label byte and the planes of one image (Krizhevsky, 2009).  Raises `DataError` for a file that is not a
    whole number of records.
    """
    record = 1 + math.prod(card.shape)
    for name, data in contents.items():
        if len(data) == 0 or len(data) % record:
            raise DataError(f"{name}: {len(data)} bytes; a whole number of records of {record} is needed")
    records = np.concatenate([np.frombuffer(data, np.uint8).reshape(-1, record) for data in contents.values()])
    return Arrays(records[:, 1:].reshape(-1, *card.shape), records[:, 0])


def read_npz(card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return the arrays ``x``, ``y`` and the card's columns of a NumPy archive; nothing is unpickled.

    Names in a column become numbers; other arrays of the archive are ignored.  Raises `DataError` for anything but such an
    archive.
    """
    ((name, data),) = contents.items()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = sorted(archive.namelist())
        needed = [f"{key}.npy" for key in ("x", "y", *card.groups)]
        if not set(needed) <= set(members):
            raise DataError(f"{name}: an archive of {', '.join(members) or 'nothing'}; it needs {', '.join(needed)}")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            groups = {key: numbered(arrays[key], f"{name}: {key}") for key in card.groups}
            return Arrays(arrays["x"], arrays["y"], groups)
    except DataError:
        raise
    except (*DAMAGE, MemoryError) as error:
        raise DataError(f"{name}: not a readable .npz ({error}); plain arrays x and y are needed") from None


def numbered(names: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Return a number for each of the `names` (N,): texts get numbers from 0 in sorted order, whole numbers stay.

    Samples with an empty name, such as recorded silence, go to all owners in turn.  Raises `DataError` if the names have
    another dtype or shape, or all are empty.
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


READERS: Mapping[str, Callable[[Card, Mapping[str, bytes]], Arrays]] = {
    "idx": read_idx,
    "qmnist": read_qmnist,
    "cifar-binary": read_cifar,
    "npz": read_npz,
}
"""Format -> reader."""
