"""The sentence that a user reads where a library is missing: which one, and what installs it."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def required(room: str, extra: str, *libraries: str) -> Generator[None]:
    """Let `room` import `libraries`; for one that is missing, raise `ModuleNotFoundError` with the `extra` that installs it.

    The hint names fedcomp's folder: fedcomp is on no package index, and anyone could take its name there.  If one of
    `libraries` itself misses a module, that error is raised unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in libraries:
            raise
        text = f"{room} needs {error.name}, which is not installed; in fedcomp's folder, pip install '.[{extra}]' installs it"
        raise ModuleNotFoundError(text, name=error.name) from None
