"""NumPy archives: only plain arrays are accepted."""

import io
import zipfile
from collections.abc import Callable

import numpy as np
import pytest

from fedcomp.data.card import Card
from fedcomp.data.dataset import DataError
from fedcomp.data.npz import read_split


def archive(**arrays: object) -> bytes:
    """Return the bytes that ``np.savez`` writes."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def test_the_arrays_are_read(make_card: Callable[..., Card]) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.random((4, 1, 2, 3), dtype=np.float32), np.array([0, 1, 2, 0])
    found_x, found_y, _ = read_split(make_card(), {"train.npz": archive(x=x, y=y)})
    assert np.array_equal(found_x, x)
    assert np.array_equal(found_y, y)


def test_a_column_of_the_card_becomes_numbers_and_other_arrays_are_ignored(make_card: Callable[..., Card]) -> None:
    data = archive(x=np.zeros((3, 2, 3), np.uint8), y=np.zeros(3, int), who=np.array(["b", "a", "b"]), more=np.zeros(2))
    found = read_split(make_card(groups=("who",)), {"train.npz": data})
    assert {name: column.tolist() for name, column in found.groups.items()} == {"who": [1, 0, 1]}
    with pytest.raises(DataError, match=r"archive of .*; it needs x.npy, y.npy, school.npy"):
        read_split(make_card(groups=("school",)), {"train.npz": data})


def test_missing_arrays_are_named(make_card: Callable[..., Card]) -> None:
    with pytest.raises(DataError, match=r"train.npz: an archive of a.npy; it needs x.npy, y.npy"):
        read_split(make_card(), {"train.npz": archive(a=np.zeros(1))})


def test_pickled_objects_are_refused(make_card: Callable[..., Card]) -> None:
    with pytest.raises(DataError, match="allow_pickle"):
        read_split(make_card(), {"train.npz": archive(x=np.array([{}, None]), y=np.zeros(2, int))})


def test_damage_is_refused(make_card: Callable[..., Card]) -> None:
    data = archive(x=np.zeros((2, 1, 2, 3), np.uint8), y=np.zeros(2, np.int64))
    for damaged in (b"", b"PK", data[: len(data) // 2], data[:-1], data[:100] + b"\xff" + data[101:]):
        with pytest.raises(DataError, match=r"train.npz: "):
            read_split(make_card(), {"train.npz": damaged})


def test_a_header_with_a_huge_shape_is_refused(make_card: Callable[..., Card]) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50, 1, 2, 3)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as members:
        members.writestr("x.npy", head.getvalue())
        members.writestr("y.npy", head.getvalue())
    with pytest.raises(DataError, match=r"train.npz: not a readable .npz"):
        read_split(make_card(), {"train.npz": stream.getvalue()})
