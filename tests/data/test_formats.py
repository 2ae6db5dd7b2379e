"""Readers of file formats: each layout by hand, and damage."""

import io
import struct
import zipfile

import numpy as np
import pytest

from fedcomp.data import DataError
from fedcomp.data.formats import numbered, parse_idx, read_cifar, read_idx, read_npz, read_qmnist
from tests.data.tiny import idx_bytes, make_card

IDX = bytes([0, 0, 8, 2]) + bytes([0, 0, 0, 2]) + bytes([0, 0, 0, 3]) + bytes([1, 2, 3, 4, 5, 255])
QMNIST = [[2, 4, 2154, 59, 35, 229421, 0, 0], [0, 0, 12, 0, 30, 7, 0, 0], [1, 4, 2154, 65, 34, 238481, 0, 0]]


def test_idx_by_hand() -> None:
    assert parse_idx(IDX, "x").tolist() == [[1, 2, 3], [4, 5, 255]]
    integers = bytes([0, 0, 12, 1]) + bytes([0, 0, 0, 2]) + bytes([0, 0, 1, 2]) + bytes([255, 255, 255, 254])
    assert parse_idx(integers, "x").tolist() == [258, -2]
    with pytest.raises(DataError, match=r"x: 15 bytes; .*16"):
        parse_idx(integers[:-1], "x")


def test_any_array_decodes_from_idx_to_itself_and_is_read_only() -> None:
    rng = np.random.default_rng(1)
    for rank in (1, 2, 3, 4):
        array = rng.integers(0, 256, rng.integers(1, 6, rank), dtype=np.uint8)
        found = parse_idx(idx_bytes(array), "x")
        assert np.array_equal(found, array)
        assert not found.flags.writeable


def test_an_idx_split_has_images_first_and_then_labels() -> None:
    images, labels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.array([0, 2], np.uint8)
    x, y, _ = read_idx(make_card(), {"x": idx_bytes(images), "y": idx_bytes(labels)})
    assert np.array_equal(x, images)
    assert np.array_equal(y, labels)


def test_every_other_length_of_idx_is_refused() -> None:
    for length in range(len(IDX)):
        with pytest.raises(DataError, match=rf"^x: {length} bytes; .* needs? \d+$"):
            parse_idx(IDX[:length], "x")
    with pytest.raises(DataError, match=r"x: 19 bytes; .*18"):
        parse_idx(IDX + b"\0", "x")


@pytest.mark.parametrize("magic", [b"\1\0\x08\2", b"\0\1\x08\2", b"\0\0\x0d\2", b"\0\0\x08\0", b"\x1f\x8b\x08\0"])
def test_another_magic_number_than_idx_is_refused(magic: bytes) -> None:
    with pytest.raises(DataError, match=f"x: magic number {magic.hex()}; .* 000008 .* 00000c"):
        parse_idx(magic + IDX[4:], "x")


def test_huge_dimensions_of_idx_allocate_no_memory() -> None:
    hostile = struct.pack(">HBB255I", 0, 8, 255, *[0xFFFFFFFF] * 255)
    with pytest.raises(DataError, match="x: 1024 bytes"):
        parse_idx(hostile, "x")


def qmnist_files(rows: list[list[int]]) -> dict[str, bytes]:
    """Return two images, their labels, and rows of QMNIST, of which there may be more."""
    images, labels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.array([2, 0], np.uint8)
    return {"images": idx_bytes(images), "labels": idx_bytes(labels), "extended": idx_bytes(np.array(rows, ">i4"))}


def test_the_third_column_of_qmnist_is_the_writer() -> None:
    x, y, groups = read_qmnist(make_card(groups=("writer", "series")), qmnist_files(QMNIST))
    assert x.shape == (2, 2, 3)
    assert y.tolist() == [2, 0]
    assert {name: column.tolist() for name, column in groups.items()} == {"writer": [2154, 12], "series": [4, 0]}


@pytest.mark.parametrize(
    ("rows", "column", "expected"),
    [
        ([QMNIST[0], [1, *QMNIST[1][1:]]], "writer", "sample 1 .* labels"),
        (QMNIST[:1], "writer", r"shape \(1, 8\); at least 2 rows of 8"),
        ([row[:7] for row in QMNIST], "writer", r"shape \(3, 7\); at least 2 rows of 8"),
        (QMNIST, "school", "'school'; .*: class, series, writer"),
    ],
)
def test_qmnist_of_other_samples_or_columns_is_refused(rows: list[list[int]], column: str, expected: str) -> None:
    with pytest.raises(DataError, match=f"^extended: .*{expected}"):
        read_qmnist(make_card(groups=(column,)), qmnist_files(rows))


def test_a_record_of_cifar_is_a_label_and_the_planes_in_turn() -> None:
    card = make_card(shape=(2, 1, 2), mean=(0, 0), std=(1, 1))
    x, y, _ = read_cifar(card, {"a": bytes([2, 10, 11, 20, 21]), "b": bytes([0, 1, 2, 3, 4, 1, 5, 6, 7, 8])})
    assert y.tolist() == [2, 0, 1]
    assert x.tolist() == [[[[10, 11]], [[20, 21]]], [[[1, 2]], [[3, 4]]], [[[5, 6]], [[7, 8]]]]
    for length in (0, 1, 4, 6):
        with pytest.raises(DataError, match=f"^b: {length} bytes.* 5 "):
            read_cifar(card, {"a": bytes(5), "b": bytes(length)})


def archive(**arrays: object) -> dict[str, bytes]:
    """Return a file as ``np.savez`` writes it."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return {"train.npz": stream.getvalue()}


def test_the_arrays_and_columns_of_an_archive_are_read_and_others_ignored() -> None:
    x, y = np.random.default_rng(2).random((3, 1, 2, 3), dtype=np.float32), np.array([0, 1, 2])
    files = archive(x=x, y=y, who=np.array(["b", "a", "b"]), more=np.zeros(2))
    found = read_npz(make_card(groups=("who",)), files)
    assert np.array_equal(found.x, x)
    assert np.array_equal(found.y, y)
    assert {name: column.tolist() for name, column in found.groups.items()} == {"who": [1, 0, 1]}
    with pytest.raises(DataError, match=r"^train.npz: .* it needs x.npy, y.npy, school.npy"):
        read_npz(make_card(groups=("school",)), files)


def test_pickles_damage_and_huge_shapes_in_an_archive_are_refused() -> None:
    with pytest.raises(DataError, match="allow_pickle"):
        read_npz(make_card(), archive(x=np.array([{}, None]), y=np.zeros(2, int)))
    data = archive(x=np.zeros((2, 1, 2, 3), np.uint8), y=np.zeros(2, np.int64))["train.npz"]
    head, stream = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50, 1, 2, 3)})
    with zipfile.ZipFile(stream, "w") as members:
        members.writestr("x.npy", head.getvalue())
        members.writestr("y.npy", head.getvalue())
    cuts = (b"", b"PK", data[: len(data) // 2], data[:-1], data[:100] + b"\xff" + data[101:])
    for damaged in (*cuts, stream.getvalue()):
        with pytest.raises(DataError, match=r"^train.npz: "):
            read_npz(make_card(), {"train.npz": damaged})


def test_names_get_numbers_in_sorted_order_and_samples_without_a_name_go_to_owners_in_turn() -> None:
    names = np.array(["cy", "", "al", "bo", "", "al", "", ""])
    assert numbered(names, "who").tolist() == [2, 0, 0, 1, 1, 0, 2, 0]
    whole = numbered(np.array([2002, 7, 7], np.int32), "who")
    assert whole.tolist() == [2002, 7, 7]
    assert whole.dtype == np.int64


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (np.array(["", ""]), "who: 2 samples"),
        (np.array([0.5, 1.0]), r"who of shape \(2,\) and dtype float64"),
        (np.array([["a"]]), r"who of shape \(1, 1\)"),
    ],
)
def test_anything_but_names_is_refused(names: np.ndarray, named: str) -> None:
    with pytest.raises(DataError, match=named):
        numbered(names, "who")
