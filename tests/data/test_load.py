"""Loading a card's dataset as checked arrays."""

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data.card import Card, CardFile, read_card
from fedcomp.data.dataset import Arrays, DataError, checked_split
from fedcomp.data.load import find_folder, hold_out, load, read_file
from tests.data.tiny import Images, idx_bytes, make_card, publish

CARDS = Path(__file__).parents[2] / "datasets"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
DATA = os.environ.get("FEDCOMP_DATA", "")


def test_idx_files_become_arrays(tiny_idx: tuple[Card, Path], tiny_arrays: Images) -> None:
    card, parent = tiny_idx
    x, y = tiny_arrays
    dataset = load(card, parent)
    assert dataset.card == card
    assert np.array_equal(dataset.train.x, x[:10, np.newaxis])
    assert np.array_equal(dataset.train.y, y[:10])
    assert np.array_equal(dataset.test.x, x[10:, np.newaxis])
    assert np.array_equal(dataset.test.y, y[10:])
    assert (dataset.train.x.dtype.name, dataset.train.y.dtype.name) == ("uint8", "int64")


def test_cifar_and_npz_files_become_arrays(tmp_path: Path) -> None:
    records = np.array([[0, 1, 2, 3, 4, 5, 6], [2, 7, 8, 9, 1, 2, 3]], np.uint8)
    x, y = records[:, 1:].reshape(2, 1, 2, 3), records[:, 0]
    cifar = (publish(tmp_path, "a.bin", records.tobytes()),)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    npz = (publish(tmp_path, "a.npz", (tmp_path / "a.npz").read_bytes()),)
    for form, files in (("cifar-binary", cifar), ("npz", npz)):
        dataset = load(make_card(format=form, train=files, test=files), tmp_path)
        assert np.array_equal(dataset.train.x, x)
        assert np.array_equal(dataset.test.y, y)


def test_the_digits_need_no_folder_and_no_network() -> None:
    card = read_card("digits", CARDS)
    dataset = load(card)
    assert (dataset.train.x.shape, dataset.test.x.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    assert abs(float(dataset.train.x.mean()) - card.mean[0]) < 1e-3
    assert abs(float(dataset.train.x.std()) - card.std[0]) < 1e-3


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
    assert find_folder(replace(card, folder="published"), parent) == parent / "tiny", "the card's name will do"
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


def test_a_loaded_dataset_is_cached_and_read_only(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    dataset = load(card, parent)
    assert load(card, str(parent)) is dataset
    for array in (dataset.train.x, dataset.train.y, dataset.test.x, dataset.test.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_damaged_dataset_is_not_cached(tiny_idx: tuple[Card, Path]) -> None:
    card, parent = tiny_idx
    path = parent / "tiny" / "x2"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="x2 holds"):
        load(card, parent)
    path.write_bytes(whole)
    assert len(load(card, parent).test) == 2


def test_a_card_without_a_hub_needs_a_folder(tiny_idx: tuple[Card, Path]) -> None:
    with pytest.raises(DataError, match=r"tiny: its card has no \[hub\]; data-dir with the files from .* is needed"):
        load(tiny_idx[0], "")


def test_writers_are_read_from_another_folder(
    tmp_path: Path,
    tiny_arrays: Images,
) -> None:
    x, y = tiny_arrays
    rows = np.zeros((12, 8), ">i4")
    rows[:, 0], rows[:, 2] = y, np.arange(12) // 2 + 2000

    def files(start: int, stop: int) -> tuple[CardFile, ...]:
        return (
            publish(tmp_path / "digits", f"x{start}", idx_bytes(x[start:stop])),
            publish(tmp_path / "digits", f"y{start}", idx_bytes(y[start:stop])),
            replace(publish(tmp_path / "writers", f"w{start}", idx_bytes(rows[start:stop])), folder="writers"),
        )

    train, test = files(0, 10), files(10, 12)
    card = make_card(format="qmnist", folder="digits", groups=("writer",), train=train, test=test)
    dataset = load(card, tmp_path)
    assert dataset.train.groups["writer"].tolist() == [2000, 2000, 2001, 2001, 2002, 2002, 2003, 2003, 2004, 2004]
    assert dataset.test.groups["writer"].tolist() == [2005, 2005]
    with pytest.raises(ValueError, match="read-only"):
        dataset.train.groups["writer"][0] = 1
    (tmp_path / "writers" / "w10").unlink()
    with pytest.raises(DataError, match="w10"):
        load(replace(card, title="again"), tmp_path)


def test_without_a_test_split_every_other_speaker_is_held_out(tmp_path: Path) -> None:
    who = np.array(["bo", "al", "", "cy", "bo", ""])  # al 0, bo 1, cy 2; the nameless in turn: 0, 1
    np.savez(tmp_path / "a.npz", x=np.arange(36, dtype=np.uint8).reshape(6, 2, 3), y=np.arange(6) % 3, who=who)
    file = publish(tmp_path, "a.npz", (tmp_path / "a.npz").read_bytes())
    dataset = load(make_card(format="npz", groups=("who",), test_every=2, train=(file,)), tmp_path)
    assert dataset.train.groups["who"].tolist() == [0, 0, 2]
    assert dataset.train.x[:, 0, 0, 0].tolist() == [6, 12, 18]
    assert dataset.test.groups["who"].tolist() == [1, 1, 1]
    assert dataset.test.y.tolist() == [0, 1, 2]


def test_all_samples_of_every_third_owner_are_held_out() -> None:
    owners = np.array([50, 10, 30, 20, 40, 30, 60])
    train, test = hold_out(Arrays(np.arange(7), np.arange(7) % 2, {"who": owners}), "who", every=3)
    assert test.groups["who"].tolist() == [30, 30, 60]
    assert test.x.tolist() == [2, 5, 6]
    assert test.y.tolist() == [0, 1, 0]
    assert train.x.tolist() == [0, 1, 3, 4]


FOUR = np.zeros((4, 1, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (FOUR.astype(np.int32), [0, 1, 2, 0], "samples of dtype int32; tiny needs uint8 or floats"),
        (FOUR * np.nan, [0, 1, 2, 0], "samples hold NaN or infinity"),
        (FOUR.astype(np.float64) + 1e300, [0, 1, 2, 0], "samples hold NaN or infinity"),
        (FOUR[..., :2], [0, 1, 2, 0], r"samples of shape \(1, 2, 2\); tiny needs \(1, 2, 3\)"),
        (FOUR, [0.0, 1, 2, 0], r"labels of shape \(4,\) and dtype float64; whole numbers"),
        (FOUR, [[0], [1], [2], [0]], r"labels of shape \(4, 1\)"),
        (FOUR, [0, 1, 2], "4 samples and 3 labels"),
        (FOUR[:0], np.zeros(0, int), "0 samples and 0 labels"),
        (FOUR, [0, 1, 3, 0], "labels from 0 to 3; tiny needs 0 to 2"),
        (FOUR, [0, -1, 2, 0], "labels from -1 to 2; tiny needs 0 to 2"),
    ],
)
def test_arrays_that_do_not_fit_the_card_are_refused(x: NDArray[Any], y: Any, expected: str) -> None:
    with pytest.raises(DataError, match=f"^here: {expected}"):
        checked_split(make_card(), Arrays(x, np.asarray(y)), "here")


def test_numbers_are_converted_and_columns_are_those_of_the_card_and_as_long_as_the_labels() -> None:
    labels, owners = np.array([0, 1, 2, 0], np.uint8), np.array([5, 5, 6, 6], np.int32)
    split = checked_split(make_card(groups=("who",)), Arrays(FOUR.astype(np.float64), labels, {"who": owners}), "here")
    assert split.groups["who"].tolist() == [5, 5, 6, 6]
    assert [a.dtype.name for a in (split.x, split.y, split.groups["who"])] == ["float32", "int64", "int64"]
    with pytest.raises(DataError, match="columns none .*tiny needs who"):
        checked_split(make_card(groups=("who",)), Arrays(FOUR, labels), "here")
    with pytest.raises(DataError, match="here: 4 labels and 3 of who"):
        checked_split(make_card(groups=("who",)), Arrays(FOUR, labels, {"who": owners[:3]}), "here")


@pytest.mark.skipif(
    not (SHARED / "qmnist-writers").is_dir() or not DATA, reason="no ../shared/data, or no FEDCOMP_DATA"
)
def test_mnist_has_539_training_writers_and_297_other_test_writers(tmp_path: Path) -> None:
    (tmp_path / "mnist").symlink_to(Path(DATA) / "mnist")
    (tmp_path / "qmnist-writers").symlink_to(SHARED / "qmnist-writers")
    dataset = load(read_card("mnist-writers", CARDS), tmp_path)
    train, test = (set(split.groups["writer"].tolist()) for split in (dataset.train, dataset.test))
    assert (len(train), len(test), train & test) == (539, 297, set())


@pytest.mark.skipif(not (SHARED / "speech-commands").is_dir(), reason="no ../shared/data/speech-commands")
def test_speech_commands_are_split_by_speaker_and_normalised() -> None:
    card = read_card("speech-commands", CARDS)
    dataset = load(card, SHARED)
    train, test = (set(split.groups["speaker"].tolist()) for split in (dataset.train, dataset.test))
    assert (len(train), len(test), train & test) == (192, 47, set())
    assert (len(dataset.train), len(dataset.test)) == (3914, 976)
    assert dataset.train.x.mean() / 255 == pytest.approx(card.mean[0], abs=1e-4)
    assert dataset.train.x.std() / 255 == pytest.approx(card.std[0], abs=1e-4)


@pytest.mark.skipif(not DATA, reason="FEDCOMP_DATA names no folder with mnist and fashion-mnist")
@pytest.mark.parametrize(("name", "first"), [("mnist", [5, 0, 4, 1, 9]), ("fashion-mnist", [9, 0, 0, 3, 0])])
def test_the_real_files_load(name: str, first: list[int]) -> None:
    dataset = load(read_card(name, CARDS), DATA)
    assert dataset.train.x.shape == (60_000, 1, 28, 28)
    assert dataset.test.x.shape == (10_000, 1, 28, 28)
    assert dataset.train.y[:5].tolist() == first
