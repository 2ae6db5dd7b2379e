"""The demo is as accurate as a dense run within half a point, and sends a fiftieth of its uplink bytes."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from server.app import app as server_app

NODES = 50


def _run(config: dict[str, Any], folder: Path) -> tuple[float, dict[str, Any]]:
    """Return the mean test accuracy of the last ten rounds (one round's swings by a point), and the summary."""
    config = config | {"runs-dir": str(folder), "run-name": "run"}
    server_app(LocalGrid(client_app, NODES, config, in_memory=True), Context(1, 0, {}, RecordDict(), config))
    lines = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return statistics.mean(line["accuracy"] for line in lines[-10:]), summary


@pytest.mark.system
def test_the_demo_is_as_accurate_as_dense_and_sends_a_fiftieth_up(config: dict[str, Any], tmp_path: Path) -> None:
    compressed, summary = _run(config, tmp_path / "auto")
    dense, reference = _run(config | {"uplink": "dense()", "downlink": "dense()"}, tmp_path / "dense")
    assert summary["rounds"] == reference["rounds"] == 120
    assert dense > 0.93
    assert compressed > dense - 0.005
    assert summary["dense_uplink_bytes"] > 50 * summary["uplink_bytes"]
    assert summary["dense_downlink_bytes"] > 9 * summary["downlink_bytes"]
    assert reference["uplink_bytes"] == pytest.approx(reference["dense_uplink_bytes"], rel=0.01)
