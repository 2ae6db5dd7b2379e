"""A file is the old one or the new one, whole."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from fedcomp.core.atomic_file import write_atomically


def test_writing_leaves_the_old_file_or_the_new_one_and_no_third(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_atomically(path, lambda file: file.write(b"old"))
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"

    def torn(file: BinaryIO) -> None:
        file.write(b"half of the n")
        assert path.read_bytes() == b"new"
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_atomically(path, torn)
    assert path.read_bytes() == b"new"
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_two_writers_at_once_each_write_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def outer(file: BinaryIO) -> None:
        file.write(b"outer")
        write_atomically(path, lambda inner: inner.write(b"inner"))
        assert path.read_bytes() == b"inner"

    write_atomically(path, outer)
    assert path.read_bytes() == b"outer"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_others_may_not_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "file", lambda file: file.write(b"weights"))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
