"""Flower's simulation and `LocalGrid` agree: the same settings and seed give the same bytes and the same model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from server.app import app as server_app

ROOT = Path(__file__).resolve().parents[2]
NODES = 7
MEASURED = ("round", "accuracy", "loss", "uplink_bytes", "downlink_bytes", "catch_up_bytes", "dense_uplink_bytes",
            "dense_downlink_bytes", "refused", "slowest_uplink_bytes", "slowest_downlink_bytes")  # fmt: skip
SETTINGS: dict[str, Any] = {
    "num-rounds": 4,
    "fraction-train": 0.5,
    "fraction-evaluate": 0.3,
    "min-nodes": NODES,
    "model": "cnn",
    "partition": "dirichlet(alpha=0.3) + rotation(degrees=20)",
    "local-steps": 4,
    "momentum": 0.5,
    "device": "cpu",
    "run-name": "run",
    "seed": 5,
}
SPARSE = {"uplink": "stc(density=0.02)", "downlink": "stc(density=0.05)"}
LEVELS = {"uplink": "qsgd(levels=2)", "downlink": "natural()", "strategy": "fedadam()"}


def run_locally(config: dict[str, Any], folder: Path, *, in_memory: bool) -> Path:
    """Run the app on `LocalGrid`; return the folder of the run."""
    config = config | {"runs-dir": str(folder)}
    server_app(LocalGrid(client_app, NODES, config, in_memory=in_memory), Context(1, 0, {}, RecordDict(), config))
    return folder / "run"


def rounds(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in MEASURED} for line in lines]


def assert_same_run(first: Path, second: Path) -> None:
    """Compare the measured rounds, and the final models to the bit."""
    assert rounds(first) == rounds(second)
    assert len(rounds(first)) == 5
    with np.load(first / "model.npz") as left, np.load(second / "model.npz") as right:
        assert left.files == right.files
        for name in left.files:
            np.testing.assert_array_equal(left[name].view(np.uint32), right[name].view(np.uint32))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("links", [SPARSE, LEVELS])
def test_nodes_that_keep_their_state_in_memory_agree_with_nodes_that_serialize_it(
    config: dict[str, Any], links: dict[str, str], tmp_path: Path
) -> None:
    config |= SETTINGS | links
    in_memory = run_locally(config, tmp_path / "memory", in_memory=True)
    assert_same_run(in_memory, run_locally(config, tmp_path / "bytes", in_memory=False))


@pytest.mark.system
def test_flowers_simulation_agrees_with_the_local_grid(config: dict[str, Any], tmp_path: Path) -> None:
    changes = SETTINGS | SPARSE
    text = " ".join(f"{key}={value!r}" for key, value in changes.items())
    launcher = [sys.executable, str(ROOT / "deploy" / "simulate.py"), "--nodes", str(NODES)]
    done = subprocess.run(
        [*launcher, "-c", f"{text} runs-dir=flower"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_run(tmp_path / "flower" / "run", run_locally(config | changes, tmp_path / "local", in_memory=True))
