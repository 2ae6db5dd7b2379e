"""`make demo`, which names no compressor, beside a run with dense traffic: accuracy and bytes."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from deploy.run_config import ROOT, app_of
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


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[str, Any]]:
    """The run with dense traffic."""
    links = {"uplink": "dense()", "downlink": "dense()"}
    return _run(app_of(ROOT)["config"] | {"min-nodes": NODES} | links, tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[str, Any]]:
    """The run of `make demo`, which names no setting."""
    assert "\ndemo: install\n\t$(BIN)/python deploy/simulate.py $(ARGS)\n" in (ROOT / "Makefile").read_text()
    return _run(app_of(ROOT)["config"] | {"min-nodes": NODES}, tmp_path_factory.mktemp("default"))


@pytest.mark.system
def test_the_default_is_as_accurate_as_dense_and_sends_150_times_fewer_bytes(
    default: tuple[float, dict[str, Any]], dense: tuple[float, dict[str, Any]]
) -> None:
    accuracy, summary = default
    assert summary["rounds"] == dense[1]["rounds"] == 120
    assert dense[0] > 0.93
    assert accuracy > dense[0] - 0.005
    assert summary["ratio"] > 150
    assert dense[1]["uplink_bytes"] == pytest.approx(dense[1]["dense_uplink_bytes"], rel=0.01)
