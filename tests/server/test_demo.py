"""`make demo` and `fedcomp demo` without a named compressor, beside runs with dense traffic: accuracy and bytes."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from deploy.run_config import ROOT, app_of
from fedcomp import auto
from fedcomp.commands.demo import ROUNDS
from fedcomp.flower import LocalGrid, demo
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
def test_make_demo_names_no_compressor_is_as_accurate_as_dense_and_sends_150_times_fewer_bytes(tmp_path: Path) -> None:
    assert "\ndemo: install\n\t$(BIN)/python deploy/simulate.py $(ARGS)\n" in (ROOT / "Makefile").read_text()
    config, links = app_of(ROOT)["config"] | {"min-nodes": NODES}, {"uplink": "dense()", "downlink": "dense()"}
    accuracy, summary = _run(config, tmp_path / "default")
    dense_accuracy, dense = _run(config | links, tmp_path / "dense")
    assert summary["rounds"] == dense["rounds"] == 120
    assert dense_accuracy > 0.93
    assert accuracy > dense_accuracy - 0.005
    assert summary["ratio"] > 150
    assert summary["dense_uplink_bytes"] > 150 * summary["uplink_bytes"]
    assert summary["dense_downlink_bytes"] > 100 * summary["downlink_bytes"]
    assert dense["uplink_bytes"] == pytest.approx(dense["dense_uplink_bytes"], rel=0.01)


@pytest.mark.system
def test_the_demo_of_the_package_is_within_a_point_of_plain_flower_and_sends_150_times_fewer_bytes_for_its_length() -> (
    None
):
    """As many times fewer in 30 rounds, of the 120 of `make demo`."""
    plain, default = (demo.run(compressor, ROUNDS) for compressor in (None, auto()))
    assert plain.accuracy > 0.95
    assert default.accuracy > plain.accuracy - 0.01
    sent, dense = (row.uplink_bytes + row.downlink_bytes for row in (default, plain))
    assert dense > 150 * ROUNDS / 120 * sent
