"""What the README promises of `make demo`, on a `LocalGrid` of as many nodes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from deploy.run_config import parse_config
from fedcomp.flower import LocalGrid
from server.app import app as server_app

MAKEFILE = Path(__file__).parents[2] / "Makefile"
NODES = 50


@pytest.mark.system
def test_the_demo_sends_150_times_fewer_bytes_and_ends_within_a_point(config: dict[str, Any], tmp_path: Path) -> None:
    (text,) = re.findall(r"^DEMO := (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    summaries = {}
    for name, links in (("demo", parse_config([text])), ("dense", {"uplink": "dense()", "downlink": "dense()"})):
        run: dict[str, Any] = config | links | {"runs-dir": str(tmp_path), "run-name": name, "min-nodes": NODES}
        server_app(LocalGrid(client_app, NODES, run, in_memory=True), Context(1, 0, {}, RecordDict(), run))
        summaries[name] = json.loads((tmp_path / name / "summary.json").read_text())
    assert summaries["demo"]["ratio"] > 150
    assert summaries["demo"]["accuracy"] > summaries["dense"]["accuracy"] - 0.01
