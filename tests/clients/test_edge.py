"""A node on an edge device has Flower, torch and numpy, but no libraries of datasets and studies."""

import hashlib
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.data import load, read_card, write_own

ROOT = Path(__file__).parents[2]

ROUND = """
import pathlib, sys, tomllib
from importlib.machinery import PathFinder

class OnThisDevice:
    absent = {"datasets", "flwr_datasets", "matplotlib", "pandas", "pyarrow", "ray", "scipy", "sklearn"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in cls.absent else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [OnThisDevice if finder is PathFinder else finder for finder in sys.meta_path]
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
import fedcomp
from clients.app import app
from clients.samples import own_card
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.tasks import build_model, input_shape

app_table = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["tool"]["flwr"]["app"]
config = app_table["config"] | {"partition": sys.argv[2]}
grid = LocalGrid(app, 2, config, lambda node: {"data-dir": f"{sys.argv[1]}/{node}"})
card = own_card(config["dataset"])
model = build_model(config["model"], input_shape(card), card.num_classes, seed=0)
links = {"uplink": fedcomp.stc(density=0.02), "downlink": fedcomp.stc(density=0.02)}
strategy = CompressedStrategy(FedAvg(fraction_evaluate=1.0), **links)
result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=1)
print("answered:", *sorted(node for node, part in strategy.ledger.by_node().items() if part.uplink_bytes > 100))
print("torch's compiler:", "torch._dynamo" in sys.modules)
print("learned from samples:", result.evaluate_metrics_clientapp[1]["eval-accuracy"] > 0)
"""


def one_round(folder: Path, partition: str) -> "subprocess.CompletedProcess[str]":
    """Run one round of two nodes on an edge device, each with its own samples."""
    return subprocess.run(
        [sys.executable, "-c", ROUND, str(folder), partition],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write_idx(folder: Path, images: NDArray[Any], labels: NDArray[Any]) -> None:
    """Write the samples of a device as IDX files, and their card."""
    folder.mkdir()
    files = []
    for name, array in (("images", images.astype(np.uint8)), ("labels", labels.astype(np.uint8))):
        data = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        (folder / name).write_bytes(data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        files.append(f'{{ name = "{name}", size = {len(data)}, md5 = "{md5}" }}')
    card = (ROOT / "datasets" / "digits.toml").read_text().replace("sklearn-digits", "idx")
    (folder / "digits.toml").write_text(f"{card}\n[files]\ntrain = [{', '.join(files)}]\n")


@pytest.mark.system
def test_nodes_train_on_their_own_samples_without_the_libraries_of_datasets(tmp_path: Path) -> None:
    card = read_card("digits", ROOT / "datasets")
    train = load(card).train
    write_own(tmp_path / "1", card, train.x[:200], train.y[:200])
    write_idx(tmp_path / "2", train.x[200:400, 0] * 255, train.y[200:400])
    done = one_round(tmp_path, "own()")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answered: 1 2\ntorch's compiler: False\nlearned from samples: True\n"


@pytest.mark.system
def test_partitioning_needs_the_libraries_that_a_device_lacks(tmp_path: Path) -> None:
    done = one_round(tmp_path, "iid()")
    assert done.returncode != 0
    assert re.search(r"needs (sklearn|flwr_datasets|datasets), which is not installed", done.stderr)
