"""Files that are complete at any moment, the old one or the new one, even after a power cut in the middle of a write."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o600) -> None:
    """Replace the file `path` by one that `write` fills; its folder is created if needed; `mode` is its mode.

    The new file is flushed to the disk under a temporary name in the same folder, and then renamed.  A writer that is killed
    leaves a file ``.<name>.<letters>.partial`` behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(mode)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name != "nt":  # Windows opens no folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
