"""``flwr run`` and a study on `LocalGrid` agree: the same settings and seed give the same bytes and the same model."""

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
MEASURED = ("accuracy", "loss", "uplink_bytes", "downlink_bytes", "catch_up_bytes", "dense_uplink_bytes",
            "dense_downlink_bytes", "refused", "slowest_uplink_bytes", "slowest_downlink_bytes")  # fmt: skip
SETTINGS = {
    "num-rounds": 6,
    "fraction-train": 0.5,
    "fraction-evaluate": 0.3,
    "min-nodes": NODES,
    "model": "cnn",
    "partition": "dirichlet(alpha=0.3) + rotation(degrees=20)",
    "momentum": 0.5,
    "device": "cpu",
    "run-name": "run",
    "seed": 5,
}


@pytest.mark.parametrize(
    "links",
    [
        {"uplink": "stc(density=0.02)", "downlink": "stc(density=0.05)"},
        {"uplink": "qsgd(levels=2)", "downlink": "natural()", "strategy": "fedadam()"},
    ],
)
def test_a_run_in_flowers_simulation_and_one_in_this_process_agree_to_the_bit(
    config: dict[str, Any], links: dict[str, str], tmp_path: Path
) -> None:
    given = SETTINGS | links
    text = " ".join(f"{key}='{value}'" if isinstance(value, str) else f"{key}={value}" for key, value in given.items())
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "simulate.py"), "--nodes", str(NODES), "-c", f"{text} runs-dir=flwr"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    here = config | given | {"runs-dir": str(tmp_path / "study")}
    server_app(LocalGrid(client_app, NODES, here, in_memory=True), Context(1, 0, {}, RecordDict(), here))

    flower, study = ((tmp_path / name / "run") for name in ("flwr", "study"))
    theirs, ours = ([_measured(line) for line in _lines(folder)] for folder in (flower, study))
    assert theirs == ours
    assert len(ours) == 7
    with np.load(flower / "model.npz") as left, np.load(study / "model.npz") as right:
        assert left.files == right.files
        for name in left.files:
            np.testing.assert_array_equal(left[name].view(np.uint32), right[name].view(np.uint32))


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def _measured(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in MEASURED}
