"""When a run writes its checkpoint, and where."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path

from fedcomp.core import check_int, from_json, names_aside, read_archive, use_python_numbers
from fedcomp.errors import CORRUPTION_ERRORS
from fedcomp.flower.compat import log
from fedcomp.flower.server.model.traffic_file import traffic_path

BEFORE = ".before"
"""The suffix of a checkpoint that a new run would have replaced; later ones have a number behind it."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk, or a limit, without room."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The file that gets the whole state of a run before the first message of every `every`-th version leaves.

    The first version is included.  If nodes evaluate, it is written after that, too: they then hold the version, and the
    strategy has drawn them.  Beside it, a file with ``.traffic`` behind its name grows by the traffic of each round and node.

    Attributes:
        path: The file; its folder must exist.
        every: The number of versions from one write to the next, at least 1.

    Raises:
        ValueError: `path` is no path, or `every` is below 1.

    Examples:
        >>> Checkpoint("run.npz", every=10).every
        10
    """

    path: str | Path
    every: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise ValueError(f"path is {self.path!r}; the path of a file is needed")
        use_python_numbers(self)
        check_int("every", self.every, 1, 2**63 - 1)

    def is_due(self, server_round: int) -> bool:
        """Return whether the checkpoint is written after `server_round`."""
        return server_round % self.every == 0


def set_aside(path: Path) -> None:
    """Rename the checkpoint `path` of a run that has trained, which a new run would replace, and its traffic; log the new name.

    A file that is no checkpoint is renamed, too.  The checkpoint of a run that has not trained yet is left to be replaced.
    """
    if not path.is_file() or _trained_rounds(path) == 0:
        return
    aside = next(name for name in names_aside(path, BEFORE) if not name.exists())
    path.rename(aside)
    traffic_path(aside).unlink(missing_ok=True)
    if traffic_path(path).exists():
        traffic_path(path).replace(traffic_path(aside))
    text = "fedcomp: this run did not load %s, and would replace it: it is now %s; load() continues the run in a checkpoint"
    log(WARNING, text, path, aside.name)


def _trained_rounds(path: Path) -> int | None:
    """Return the rounds of the run in a checkpoint; None for a file that is none."""
    try:
        return int(from_json(read_archive(path, ["plain"])["plain"])["round"])
    except (OSError, *CORRUPTION_ERRORS):
        return None


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Let an `OSError` of writing the checkpoint `path` say, in one sentence, what is left to continue from.

    A folder is refused before anything is written.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"the checkpoint {path} is a folder; the path of a file is needed")
    try:
        yield
    except OSError as error:
        room = "make room, and " if error.errno in FULL else ""
        left = f"the one before is whole: {room}continue from it" if path.exists() else "there was none before"
        text = f"{error.strerror}: {error.filename or path} cannot be written, and so no new checkpoint; {left}"
        raise OSError(error.errno, text) from error
