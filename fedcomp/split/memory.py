"""The memory of one end of a cut: the last activation of each sample.  Rows beyond a bound are in a file."""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector

RAM_BYTES = 1 << 28
Ids = Sequence[int] | NDArray[np.int64]


class ActivationMemory:
    """Rows of `row_size` float32 by sample id; a row of size 0 only says that the sample is known.

    Rows are in memory up to `ram_bytes`, and beyond that in a file: a temporary file that vanishes with the process, or the
    file at `path`, which stays.  The file holds row i at i times the size of a row, so its length follows the largest id.

    Examples:
        >>> import numpy as np
        >>> from fedcomp.split import ActivationMemory
        >>> memory = ActivationMemory(2, ram_bytes=8)
        >>> memory.put([7, 3], np.array([[1, 2], [3, 4]], np.float32))
        >>> memory.rows([3, 7]).tolist(), memory.file_rows
        ([[3.0, 4.0], [1.0, 2.0]], 1)
        >>> memory.close()

    """

    def __init__(self, row_size: int, ram_bytes: int = RAM_BYTES, path: Path | None = None, ids: Ids = ()) -> None:
        """Make an empty memory, or one that continues with the rows `ids` in the file at `path`.

        Raises `OSError` if there is no such file or it cannot be written.
        """
        self.row_size = row_size
        self._rows: dict[int, Vector] = {}
        self._in_file: set[int] = set(map(int, ids))
        self._most_rows = ram_bytes // (4 * row_size) if row_size else 0
        self._path = path
        continues = path is not None and row_size and self._in_file
        self._file: BinaryIO | None = path.open("r+b") if path is not None and continues else None

    @property
    def ids(self) -> NDArray[np.int64]:
        """The known samples, ascending, int64 (k,)."""
        return np.array(sorted({*self._rows, *self._in_file}), np.int64)

    @property
    def file_rows(self) -> int:
        """The number of rows in the file."""
        return len(self._in_file)

    def knows(self, ids: Ids) -> NDArray[np.bool_]:
        """Return for each of `ids` whether it has a row."""
        return np.array([int(each) in self._rows or int(each) in self._in_file for each in ids], np.bool_)

    def rows(self, ids: Ids) -> Vector:
        """Return the rows of `ids`, float32 (len(ids), row_size); raise `KeyError` for an unknown id."""
        found = np.empty((len(ids), self.row_size), np.float32)
        for row, each in zip(found, map(int, ids), strict=True):
            row[:] = self._rows[each] if each in self._rows else self._read(each)
        return found

    def put(self, ids: Ids, rows: Vector) -> None:
        """Set the rows of `ids`, float32 (len(ids), row_size); other rows stay."""
        for row, each in zip(rows, map(int, ids), strict=True):
            if each in self._rows or (each not in self._in_file and len(self._rows) < self._most_rows):
                self._rows[each] = row.copy()
            else:
                self._write(each, row)
        if self._file is not None:
            self._file.flush()

    def forget(self, ids: Ids) -> None:
        """Drop the rows of `ids`; unknown ids are ignored."""
        for each in map(int, ids):
            self._rows.pop(each, None)
            self._in_file.discard(each)

    def digest(self, ids: Ids) -> int:
        """Return a 64-bit hash of the rows of `ids` in this order; 0 if they have no bytes."""
        return digest_of(self.rows(ids))

    def close(self) -> None:
        """Close the file; a temporary file is deleted."""
        if self._file is not None:
            self._file.close()

    def _read(self, each: int) -> Vector:
        if each not in self._in_file:
            raise KeyError(each)
        if self._file is None or not self.row_size:
            return np.empty(0, np.float32)
        self._file.seek(4 * self.row_size * each)
        data = self._file.read(4 * self.row_size)
        return np.frombuffer(data.ljust(4 * self.row_size, b"\0"), "<f4")  # a file that was cut short fails the digest

    def _write(self, each: int, row: Vector) -> None:
        if self.row_size:
            if self._file is None:
                self._file = tempfile.TemporaryFile() if self._path is None else _made(self._path)  # noqa: SIM115
            self._file.seek(4 * self.row_size * each)
            self._file.write(row.astype("<f4").tobytes())
        self._in_file.add(each)


def digest_of(rows: Vector) -> int:
    """Return BLAKE2b of the bytes of `rows`, little-endian float32, as a 64-bit number; 0 for no bytes."""
    data = rows.astype("<f4", copy=False).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") if data else 0


def _made(path: Path) -> BinaryIO:
    """Return a new file at `path`, which only this user can read: it holds activations of a node's samples."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
