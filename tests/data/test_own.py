"""A node's own samples: they are read as written, and refused if they do not fit the run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data.card import CardFile, read_card
from fedcomp.data.dataset import DataError
from fedcomp.data.load import load
from fedcomp.data.own import load_own, write_own
from tests.data.tiny import Images, idx_bytes, make_card, publish

CARDS = Path(__file__).parents[2] / "datasets"


def test_a_run_reads_the_samples_as_they_were_written(tmp_path: Path, tiny_arrays: Images) -> None:
    card = make_card(resize=4, groups=("writer",), test_every=2, format="npz", train=(CardFile("x", 1, 32 * "0"),))
    x, y = tiny_arrays
    for name in ("new/folder", "again"):
        write_own(tmp_path / name, card, x, y)
    found = load_own(card, tmp_path / "new" / "folder")
    assert found.x.dtype == np.uint8
    assert np.array_equal(found.x, x[:, np.newaxis])
    assert np.array_equal(found.y, y)
    assert found.groups == {}
    files = {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert files.keys() == {"tiny.npz", "tiny.toml"}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_samples_of_every_known_dataset_are_written_and_read(tmp_path: Path) -> None:
    names = sorted(path.stem for path in CARDS.glob("*.toml"))
    assert "sonnets" in names
    for name in names:
        card = read_card(name, CARDS)
        x, y = np.zeros((3, *card.shape), np.uint8), np.array([0, 1, card.num_classes - 1])
        write_own(tmp_path / name, card, x, y)
        found = load_own(card, tmp_path / name)
        assert np.array_equal(found.x, x)
        assert np.array_equal(found.y, y)


def test_the_written_card_is_an_ordinary_card(tmp_path: Path) -> None:
    card = make_card(title='of "them"', source="größer \\ weiter\nund \x7f weiter", mean=(1 / 3,))
    write_own(tmp_path, card, np.zeros((2, 2, 3), np.float32), np.array([0, 2]))
    own = read_card("tiny", tmp_path)
    assert (own.format, own.test, own.hub, [file.name for file in own.train]) == ("npz", (), None, ["tiny.npz"])
    assert replace(own, format=card.format, train=card.train, hub=card.hub) == card


def test_own_files_may_have_another_format_and_no_test_split(tmp_path: Path, tiny_arrays: Images) -> None:
    x, y = tiny_arrays
    images, labels = publish(tmp_path, "x", idx_bytes(x)), publish(tmp_path, "y", idx_bytes(y))
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\ntitle = "Mine"\nformat = "idx"\nshape = [1, 2, 3]\nclasses = ["a", "b", "c"]\nmean = [0.5]\n'
        'std = [0.25]\nlicence = "mine"\nsource = "a camera"\n[files]\ntrain = ['
        + ", ".join(f'{{ name = "{file.name}", size = {file.size}, md5 = "{file.md5}" }}' for file in (images, labels))
        + "]\n"
    )
    assert np.array_equal(load_own(make_card(), tmp_path).x[:, 0], x)
    with pytest.raises(DataError, match="tiny: .*test files"):
        load(read_card("tiny", tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"shape": (1, 3, 2)}, r"tiny\.toml: shape \(1, 2, 3\); the run's card tiny has \(1, 3, 2\)$"),
        ({"mean": (0.25,)}, r"tiny\.toml: mean \(0\.5,\); the run's card tiny has \(0\.25,\)$"),
        ({"std": (0.5,)}, r"tiny\.toml: std \(0\.25,\); the run's card tiny has \(0\.5,\)$"),
        ({"resize": 8}, r"tiny\.toml: resize None; the run's card tiny has 8$"),
        ({"classes": ("a", "b")}, r"tiny\.toml: 3 classes; .* 2$"),
        ({"classes": ("a", "c", "b")}, r"tiny\.toml: class 1 'b'; .* 'c'$"),
        ({"name": "huge"}, r"no dataset card 'huge' in .*; there are: tiny$"),
    ],
)
def test_a_card_that_does_not_fit_the_runs_is_refused_with_both_values(
    tmp_path: Path, tiny_arrays: Images, changes: dict[str, object], expected: str
) -> None:
    write_own(tmp_path, make_card(), *tiny_arrays)
    with pytest.raises(ValueError, match=expected) as caught:
        load_own(make_card(**changes), tmp_path)
    assert "\n" not in str(caught.value)


def test_own_samples_need_a_folder_with_a_card_of_files(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\ntitle = "T"\nformat = "huggingface"\nshape = [1, 2, 3]\nclasses = 3\nmean = [0.5]\nstd = [0.25]\n'
        'licence = "none"\nsource = "nowhere"\n[hub]\nid = "someone/tiny"\n'
    )
    with pytest.raises(DataError, match=r"tiny\.toml: .*'huggingface'.*: cifar-binary, idx"):
        load_own(make_card(), tmp_path)
    with pytest.raises(ValueError, match="'tiny' in .*nowhere"):
        load_own(make_card(), tmp_path / "nowhere")


def test_samples_that_changed_after_their_card_are_refused(tmp_path: Path, tiny_arrays: Images) -> None:
    write_own(tmp_path, make_card(), *tiny_arrays)
    data = bytearray((tmp_path / "tiny.npz").read_bytes())
    data[-200] ^= 1
    (tmp_path / "tiny.npz").write_bytes(data)
    with pytest.raises(DataError, match=r"tiny\.npz has md5 [0-9a-f]+; tiny needs"):
        load_own(make_card(), tmp_path)


def test_samples_are_overwritten_only_on_request(tmp_path: Path, tiny_arrays: Images) -> None:
    x, y = tiny_arrays
    write_own(tmp_path, make_card(), x, y)
    with pytest.raises(DataError, match=r"tiny\.npz"):
        write_own(tmp_path, make_card(), x[:3], y[:3])
    assert len(load_own(make_card(), tmp_path)) == 12
    write_own(tmp_path, make_card(), x[:3], y[:3], over=True)
    assert len(load_own(make_card(), tmp_path)) == 3


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (np.zeros((2, 3, 3), np.uint8), np.zeros(2, int), r"the samples: samples of shape \(3, 3\); tiny needs"),
        (np.zeros((2, 2, 3), np.uint8), np.array([0, 3]), r"the samples: labels from 0 to 3; tiny needs 0 to 2"),
        (np.zeros((2, 2, 3), np.int16), np.zeros(2, int), "the samples: samples of dtype int16"),
        (np.full((2, 2, 3), np.nan), np.zeros(2, int), "the samples: samples hold NaN"),
        (np.zeros((0, 2, 3), np.uint8), np.zeros(0, int), "0 samples and 0 labels"),
    ],
)
def test_arrays_that_do_not_fit_the_card_leave_no_files(
    tmp_path: Path, x: NDArray[np.generic], y: NDArray[np.generic], expected: str
) -> None:
    with pytest.raises(DataError, match=expected):
        write_own(tmp_path / "new", make_card(), x, y)
    assert not (tmp_path / "new").exists()
