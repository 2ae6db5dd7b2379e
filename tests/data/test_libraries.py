"""The embedded digits, and Hugging Face datasets: a saved folder, and a local repository in place of the hub; no network."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Picture

from datasets import Array3D, ClassLabel, DatasetDict, Features, Image, Value
from datasets import Dataset as Table
from fedcomp.data.card import Card, Hub
from fedcomp.data.dataset import DataError
from fedcomp.data.libraries import read_digits
from fedcomp.data.load import load
from tests.data.tiny import Images, make_card


def test_the_digits_are_two_fixed_splits_with_the_same_class_distribution() -> None:
    (train_x, train_y, _), (test_x, test_y, _) = read_digits()
    assert (train_x.shape, test_x.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    assert (train_x.dtype.name, train_y.dtype.name) == ("float32", "int64")
    assert (train_x.min(), train_x.max()) == (0, 1)
    both = np.bincount(train_y) + np.bincount(test_y)
    assert np.abs(np.bincount(test_y) - both * 360 / 1797).max() < 1
    assert np.array_equal(read_digits()[1][0], test_x)


CARDS = Path(__file__).parents[2] / "datasets"
CARD = make_card(format="huggingface", hub=Hub("someone/tiny", image="img", label="digit"))


def table(x: NDArray[np.uint8], y: NDArray[np.uint8]) -> Table:
    """Return a table of PNG images and named classes, as on the hub."""
    features = Features({"img": Image(), "digit": ClassLabel(names=["a", "b", "c"])})
    return Table.from_dict({"img": [Picture.fromarray(image) for image in x], "digit": y.tolist()}, features=features)


def save(folder: Path, x: NDArray[np.uint8], y: NDArray[np.uint8]) -> None:
    """Write ten training and two test images with ``save_to_disk``."""
    DatasetDict({"train": table(x[:10], y[:10]), "test": table(x[10:], y[10:])}).save_to_disk(str(folder))


def test_a_saved_folder_becomes_arrays(tmp_path: Path, tiny_arrays: Images) -> None:
    x, y = tiny_arrays
    save(tmp_path / "tiny", x, y)
    dataset = load(CARD, tmp_path)
    assert np.array_equal(dataset.train.x, x[:10, np.newaxis])
    assert np.array_equal(dataset.train.y, y[:10])
    assert np.array_equal(dataset.test.x, x[10:, np.newaxis])
    assert dataset.train.x.dtype == np.uint8
    assert dataset.train.y.dtype == np.int64


def test_a_saved_folder_loads_for_a_card_of_another_format(
    tmp_path: Path, tiny_idx: tuple[Card, Path], tiny_arrays: Images
) -> None:
    save(tmp_path / "saved", *tiny_arrays)
    card = replace(tiny_idx[0], hub=Hub("someone/tiny", image="img", label="digit"))
    assert len(load(card, tmp_path / "saved").train) == 10


def test_colour_images_become_channels_first(tmp_path: Path) -> None:
    x = np.random.default_rng(8).integers(0, 256, (12, 2, 4, 3), dtype=np.uint8)
    save(tmp_path, x, np.arange(12, dtype=np.uint8) % 3)
    card = make_card(
        format="huggingface",
        shape=(3, 2, 4),
        mean=(0, 0, 0),
        std=(1, 1, 1),
        hub=Hub("someone/tiny", image="img", label="digit"),
    )
    assert np.array_equal(load(card, tmp_path).train.x, x[:10].transpose(0, 3, 1, 2))


def test_a_column_of_float_arrays_stays_as_it_is(tmp_path: Path) -> None:
    x = np.random.default_rng(9).random((4, 1, 2, 3), dtype=np.float32)
    features = Features({"img": Array3D((1, 2, 3), "float32"), "digit": Value("int8")})
    split = Table.from_dict({"img": list(x), "digit": [0, 1, 2, 0]}, features=features)
    DatasetDict({"train": split, "test": split}).save_to_disk(str(tmp_path))
    dataset = load(CARD, tmp_path)
    assert np.array_equal(dataset.test.x, x)
    assert dataset.test.y.tolist() == [0, 1, 2, 0]


def test_a_repository_of_parquet_files_loads_as_from_the_hub(
    tmp_path: Path, tiny_arrays: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flwr_datasets.common.telemetry.FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    x, y = tiny_arrays
    repository = tmp_path / "repository"
    repository.mkdir()
    table(x[:10], y[:10]).to_parquet(str(repository / "train-0.parquet"))
    table(x[10:], y[10:]).to_parquet(str(repository / "test-0.parquet"))
    dataset = load(replace(CARD, hub=Hub(str(repository), image="img", label="digit")))
    assert np.array_equal(dataset.train.x, x[:10, np.newaxis])
    assert np.array_equal(dataset.test.y, y[10:])


def test_a_missing_repository_is_refused_in_one_sentence(tmp_path: Path) -> None:
    absent = replace(CARD, hub=Hub(str(tmp_path / "absent")))
    with pytest.raises(DataError, match="absent .*connection"):
        load(absent)


@pytest.mark.system
def test_a_hub_that_does_not_answer_is_refused_in_three_seconds(tmp_path: Path) -> None:
    """The hub is a socket that takes connections and says nothing: the slowest way to be without a network."""
    program = (
        "import time; from fedcomp.data import load, read_card\n"
        "import datasets, flwr_datasets, huggingface_hub\n"
        f"card, begin = read_card('mnist', {str(CARDS)!r}), time.monotonic()\n"
        "try: load(card)\n"
        "except ValueError as error: print(time.monotonic() - begin, error)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HOME": str(tmp_path)}
        env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()} | hub
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    seconds, _, told = done.stdout.partition(" ")
    assert told.startswith("mnist: ylecun/mnist did not come from the Hugging Face hub ("), done
    assert "a connection is needed, or data-dir with the files from " in told
    assert 2.5 < float(seconds) < 8, "three seconds, on a busy machine"
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("hub", "named"),
    [
        (Hub("someone/tiny", image="img"), r"\[train\]: .*'label'; there are: img, digit"),
        (Hub("someone/tiny", test="validation"), "train and validation"),
    ],
)
def test_a_missing_column_or_split_is_named(tmp_path: Path, tiny_arrays: Images, hub: Hub, named: str) -> None:
    save(tmp_path, *tiny_arrays)
    with pytest.raises(DataError, match=named):
        load(replace(CARD, hub=hub), tmp_path)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    save(tmp_path, np.zeros((12, 2, 4), np.uint8), np.zeros(12, np.uint8))
    with pytest.raises(DataError, match=r"a sample of shape \(2, 4\); tiny needs \(1, 2, 3\)"):
        load(CARD, tmp_path)


def test_a_damaged_folder_is_refused(tmp_path: Path, tiny_arrays: Images) -> None:
    save(tmp_path, *tiny_arrays)
    for shard in (tmp_path / "train").glob("*.arrow"):
        shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(DataError, match="train and test"):
        load(CARD, tmp_path)


def test_an_error_about_a_missing_folder_names_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dataset_dict.json .*someone/tiny"):
        load(CARD, tmp_path)
