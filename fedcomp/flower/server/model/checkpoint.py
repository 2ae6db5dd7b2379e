"""When a run writes its checkpoint, and where."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedcomp.core import check_int, use_python_numbers


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The file that gets the whole state of a run before the first message of every `every`-th version leaves.

    The first version is included.  Beside it, a file with ``.traffic`` behind its name grows by the traffic of each round and
    node.

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


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Let an `OSError` of writing the checkpoint `path` say, in one sentence, what is left to continue from."""
    try:
        yield
    except OSError as error:
        left = "the one before is whole: make room, and continue from it" if path.exists() else "there was none before"
        text = f"{error.strerror}: {error.filename or path} cannot be written, and so no new checkpoint; {left}"
        raise OSError(error.errno, text) from error
