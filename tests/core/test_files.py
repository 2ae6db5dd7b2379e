"""A file is the old one or the new one, whole."""

import os
import resource
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from fedcomp.core import read_archive, write_archive, write_atomically
from fedcomp.errors import CorruptError


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


def test_only_the_owner_may_read_it_unless_the_mode_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for umask in (0, 0o077):
        before = os.umask(umask)
        try:
            write_atomically(path, lambda file: file.write(b"weights"))
            assert path.stat().st_mode & 0o777 == 0o600
            write_atomically(path, lambda file: file.write(b"card"), mode=0o644)
            assert path.stat().st_mode & 0o777 == 0o644
        finally:
            os.umask(before)


def test_a_machine_without_memory_is_not_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    write_archive(tmp_path / "archive", {"zeros": np.zeros(10)})
    monkeypatch.setattr(np.lib.format, "read_array", full)
    with pytest.raises(MemoryError):
        read_archive(tmp_path / "archive")


def test_every_flipped_bit_of_the_heads_is_harmless_or_damage(tmp_path: Path) -> None:
    """Of an array that is too large for its checksum to be known when its head is read."""
    path = tmp_path / "archive"
    write_archive(path, {"zeros": np.zeros(10_000)})
    data = path.read_bytes()
    for place in range(data.index(b"}")):
        for bit in range(8):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            try:
                assert not read_archive(path)["zeros"].any()
            except (CorruptError, KeyError):
                continue


def test_sizes_beyond_the_file_are_damage_and_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    write_archive(path, {"a": np.arange(20)})
    data = path.read_bytes()
    directory = data.index(b"PK\x01\x02")
    for place in (20, 24):  # of the compressed and the whole size of a member
        for bit in (29, 30, 31):
            changed = bytearray(data)
            changed[directory + place + bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises(CorruptError, match="a.npy claims .* the file has"):
                read_archive(path)


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o600, 0o700), (0o644, 0o755)])
def test_new_folders_are_for_those_who_may_read_the_file(mode: int, folder_mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, lambda file: file.write(b"x"), mode=mode)
    assert path.stat().st_mode & 0o777 == mode
    assert {folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)} == {folder_mode}


def test_an_error_of_the_disk_names_the_file_and_not_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match=f": '{path}'$"):
            write_atomically(path, lambda file: file.write(bytes(11)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match=f"it is a device or a pipe; a file is needed: '{path}'$"):
        write_atomically(path, lambda file: file.write(b"x"))
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match=r"it is a device or a pipe; a file is needed: '/dev/output-of-fedcomp'$"):
        write_atomically(Path("/dev/output-of-fedcomp"), lambda file: file.write(b"x"))


def test_the_name_of_a_new_file_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    path = tmp_path / "file"
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, path.exists())))
    write_atomically(path, lambda file: file.write(b"x"))
    assert synced == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]
