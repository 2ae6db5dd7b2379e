"""Published files: plain or compressed, complete or refused."""

import gzip
from pathlib import Path

import pytest

from fedcomp.data.card import Card
from fedcomp.data.dataset import DataError
from fedcomp.data.files import find_folder, read_file


def test_a_file_is_read_plain_and_compressed(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    file, folder = card.train[0], parent / "tiny"
    data = (folder / file.name).read_bytes()
    assert read_file(card, file, folder) == data
    (folder / f"{file.name}.gz").write_bytes(gzip.compress(data))
    (folder / file.name).unlink()
    assert read_file(card, file, folder) == data


def test_a_folder_is_found_itself_or_as_a_child_and_what_is_missing_is_named(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    assert find_folder(card, parent) == find_folder(card, parent / "tiny") == parent / "tiny"
    with pytest.raises(DataError, match=r"tiny: no x10 in .*/none/tiny, .*/none; .* https://example.org/tiny"):
        find_folder(card, parent / "none")
    (parent / "tiny" / "y10").unlink()
    with pytest.raises(DataError, match=r"tiny/y10 .* y10.gz; .* https://example.org/tiny"):
        read_file(card, card.train[1], parent / "tiny")


def test_every_truncation_and_every_flipped_byte_is_refused(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    file, path = card.train[1], parent / "tiny" / "y10"
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=f"y10 holds {length} bytes; tiny needs {len(data)}"):
            read_file(card, file, path.parent)
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DataError, match=f"y10 has md5 [0-9a-f]+; tiny needs {file.md5}"):
            read_file(card, file, path.parent)


def test_a_decompression_bomb_is_read_only_up_to_the_size_of_the_card(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    file, path = card.train[1], parent / "tiny" / "y10"
    path.unlink()
    (path.parent / "y10.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match=f"y10.gz holds more than {file.size} bytes; tiny needs {file.size}"):
        read_file(card, file, path.parent)


def test_a_damaged_archive_is_refused(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    file, path = card.train[1], parent / "tiny" / "y10"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    for damaged in (b"", b"not gzip", packed[:-12], packed[:12] + b"\xff\xff" + packed[14:]):
        (path.parent / "y10.gz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"y10.gz (cannot be read|holds 0 bytes|has md5)"):
            read_file(card, file, path.parent)
