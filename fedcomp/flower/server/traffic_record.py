"""The traffic of every round and node in a file beside the checkpoint, to which each save appends what is new.

It holds rows of `fedcomp.sync.ROW`, one behind the other.  A node may have several rows for a round: their sum counts.
"""

import os
from logging import WARNING
from pathlib import Path

from fedcomp.flower._compat import log
from fedcomp.sync import ROW, Ledger

SUFFIX = ".traffic"


class TrafficRecord:
    """The record beside the checkpoint `path`.  A checkpoint names its size: what lies behind that is overwritten."""

    def __init__(self, path: Path) -> None:
        self._checkpoint = path
        self.path = path.with_name(path.name + SUFFIX)
        self._size = 0
        self._ledger: Ledger | None = None

    def belongs_to(self, path: str | Path) -> bool:
        """Return whether `path` is that of the checkpoint."""
        return Path(path).resolve() == self._checkpoint.resolve()

    def append(self, ledger: Ledger) -> int:
        """Write what is new in `ledger`; return the size of the record, which the checkpoint must hold."""
        if ledger is not self._ledger:  # the first save of a run
            ledger.collect_new()
            self._ledger = ledger
        self._check()
        data = ledger.take_new().tobytes()
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            self._size = min(self._size, file.seek(0, os.SEEK_END) // ROW.itemsize * ROW.itemsize)  # someone may cut it
            file.truncate(self._size)
            file.seek(self._size)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(data)
        return self._size

    def resume(self, size: int, row_size: int, ledger: Ledger) -> None:
        """Continue behind the `size` bytes that hold the traffic in `ledger`; with 0, begin with what `ledger` holds of it.

        A warning says if the file has fewer bytes, or rows of another size than `ROW`'s: those are of another version, and the
        file is set aside.
        """
        self._check()
        if size and row_size != ROW.itemsize and self.path.exists():
            aside = self.path.with_name(self.path.name + ".old")
            self.path.replace(aside)
            text = "fedcomp: %s has the rows of another version, and is now %s; the record begins with the last rounds"
            log(WARNING, text, self.path, aside.name)
            size = 0
        found = self.path.stat().st_size if self.path.exists() else 0
        if found < size:
            text = (
                "fedcomp: %s holds %d of %d bytes: the traffic of some rounds is missing in it; the sums are complete"
            )
            log(WARNING, text, self.path, found, size)
        ledger.collect_new()
        if size:
            ledger.take_new()
        self._size, self._ledger = min(size, found) // ROW.itemsize * ROW.itemsize, ledger

    def _check(self) -> None:
        """Raise `ValueError` for a folder or a link in place of the file: what it leads to is not the record's."""
        if self.path.is_symlink() or self.path.is_dir():
            raise ValueError(f"{self.path} is a folder or a link; the record of the traffic is a file: move it away")
