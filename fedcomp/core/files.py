"""Files that are complete at any moment, the old one or the new one, and archives of named arrays (.npz, no pickle)."""

import errno
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError

Arrays = dict[str, NDArray[Any]]

NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""The errors of opening a path where no file is: nothing, a folder, or a link that leads nowhere."""
DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise for the content of a damaged archive; `RuntimeError` is for a flipped encryption bit."""


def write_atomically(path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o600) -> None:
    """Replace the file `path` by one that `write` fills; `mode` is its mode.

    Its folder is created if needed, and whoever may read the file may enter the folder.  The new file is flushed to the disk
    under a temporary name in the same folder, and then renamed.  A writer that is killed leaves a file
    ``.<name>.<letters>.partial`` behind.  An `OSError`, such as for a full disk, or for a device or a pipe, names `path`.
    """
    with naming(path):
        is_other = path.exists() and not (path.is_file() or path.is_dir())
        if is_other or path.absolute().parent == Path(
            "/dev"
        ):  # root would replace /dev/stdout, which may lead to a file
            raise OSError(errno.EINVAL, "it is a device or a pipe; a file is needed")
        make_folder(path.parent, mode)
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


def make_folder(path: Path, mode: int = 0o600) -> None:
    """Make the folder `path` and its missing parents for files of this `mode`: whoever may read the files may enter it."""
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    path.mkdir(mode=mode | mode >> 2 & 0o111, exist_ok=True)


def names_aside(path: Path, suffix: str) -> Iterator[Path]:
    """Yield names for `path` when it is set aside: ``<name><suffix>``, ``<name><suffix>-2``, ``<name><suffix>-3``, ..."""
    first = path.with_name(path.name + suffix)
    yield first
    yield from (first.with_name(f"{first.name}-{number}") for number in count(2))


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Let every `OSError` of the block name `path`: for a full disk it would name nothing, and else a temporary name."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # else it has no text but its own
            error.filename = str(path)
        raise


def write_archive(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `arrays` to `path`, which is at any moment the old file or the new one.

    Raises `ValueError`, and writes nothing, for an array of objects: `read_archive` could not read it.
    """
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def read_archive(path: Path, names: Collection[str] = ()) -> Arrays:
    """Return the arrays in `path`: all of them, or only those in `names`.

    Raises:
        CorruptError: The file is missing, is no file, or is damaged.
        OSError: The file cannot be opened, for example without the right to read it; its content may be valid.

    """
    try:
        file = path.open("rb")
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise CorruptError(f"{path.name} is no file: {error.strerror}") from error
    with file:
        try:
            with zipfile.ZipFile(file) as archive:
                size = os.fstat(file.fileno()).st_size
                # Reading a member that claims more than the file has would take that memory.
                for member in archive.infolist():
                    if max(member.file_size, member.compress_size) > size:
                        raise CorruptError(f"{member.filename} claims {member.file_size} bytes; the file has {size}")
                names = names or [name.removesuffix(".npy") for name in archive.namelist()]
                return {name: _array_in(archive.read(f"{name}.npy")) for name in names}
        except (*DAMAGE, CorruptError) as error:
            raise CorruptError(f"{path.name} is damaged: {error}") from error


def _array_in(data: bytes) -> NDArray[Any]:
    """Return the array in an npy file whose checksum was verified: `np.load` would trust the array's head before that."""
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def below(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def octets(data: bytes) -> NDArray[np.uint8]:
    """Return `data` as an array, uint8, that shares its memory."""
    return np.frombuffer(data, np.uint8)


def to_json(value: object) -> NDArray[np.uint8]:
    """Return the JSON text of `value` as an array."""
    return octets(json.dumps(value).encode())


def from_json(array: NDArray[Any]) -> Any:
    """Return the value whose JSON text is in `array`; raise `ValueError` for any other content."""
    return json.loads(array.tobytes())
