"""The traffic of every round and node, in a file next to the checkpoint; each save appends the new rows.

The rows have the dtype `fedcomp.sync.ROW`.  A node may have several rows for a round: their sum counts.
"""

import os
from logging import WARNING
from pathlib import Path

from fedcomp.core import naming
from fedcomp.flower.compat import log
from fedcomp.sync import ROW, Ledger

SUFFIX = ".traffic"


def traffic_path(checkpoint: Path) -> Path:
    """Return the path of the traffic file next to a checkpoint."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


class TrafficFile:
    """The traffic file next to the checkpoint `path`.  A checkpoint holds the file's size; later rows are overwritten."""

    def __init__(self, path: Path) -> None:
        self._checkpoint = path
        self.path = traffic_path(path)
        self._size = 0
        self._unwritten = b""  # what a full disk did not take
        self._ledger: Ledger | None = None

    def belongs_to(self, path: str | Path) -> bool:
        """Return whether `path` is that of the checkpoint."""
        return Path(path).resolve() == self._checkpoint.resolve()

    def append(self, ledger: Ledger) -> int:
        """Write what is new in `ledger`; return the size of the file, which the checkpoint must hold."""
        if ledger is not self._ledger:  # the first save of a run
            ledger.collect_new()
            self._ledger = ledger
        self._check()
        self._unwritten += ledger.take_new().tobytes()
        with naming(self.path), open(self.path, "r+b", opener=_open_private) as file:
            self._size = min(self._size, file.seek(0, os.SEEK_END) // ROW.itemsize * ROW.itemsize)  # someone may cut it
            file.truncate(self._size)
            file.seek(self._size)
            file.write(self._unwritten)
            file.flush()
            os.fsync(file.fileno())
        self._size, self._unwritten = self._size + len(self._unwritten), b""
        return self._size

    def resume(self, size: int, ledger: Ledger) -> None:
        """Continue behind the `size` bytes that hold the traffic in `ledger`; with 0, begin with what `ledger` holds of it.

        A warning says if the file has fewer bytes.
        """
        self._check()
        found = self.path.stat().st_size if self.path.exists() else 0
        if found < size:
            is_cut = f"holds {found} of {size} bytes" if self.path.exists() else "is missing"
            text = "fedcomp: %s %s: it lacks the traffic of some rounds; the checkpoint has the sums of the whole run"
            log(WARNING, text, self.path, is_cut)
        ledger.collect_new()
        if size:
            ledger.take_new()
        self._unwritten = b""
        self._size, self._ledger = min(size, found) // ROW.itemsize * ROW.itemsize, ledger

    def _check(self) -> None:
        """Raise `ValueError` for a folder or a link in place of the file: what it leads to is not that file's."""
        if self.path.is_symlink() or self.path.is_dir():
            raise ValueError(f"{self.path} is a folder or a link; the traffic file is needed there: move it away")


def _open_private(path: str, flags: int) -> int:
    """Open the file, which is made if needed, for this user alone: it names the nodes, and when they answered."""
    handle = os.open(path, flags | os.O_CREAT, 0o600)
    os.chmod(path, 0o600)  # noqa: PTH101  (a file that exists keeps its mode)
    return handle
