"""Every recipe of docs/how-to/track.md runs as it is written there, and the tracker has the numbers of the run afterwards."""

import importlib.util
import json
import logging
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how-to" / "track.md").read_text(encoding="utf-8")
BEFORE = """
import logging
import random
from fedcomp.flower import LocalGrid
from tests.flower.toy import app, model
logging.getLogger("flwr").setLevel(logging.INFO)  # Flower's own level, which the toy lowers
random.seed(0)
grid, arrays = LocalGrid(app(), 5), model((400, 250))
"""
AFTER = """
import json
import os
uplink_bytes = [sum(strategy.ledger.of_round(one).uplink_bytes for one in range(1, last + 1)) for last in (1, 2, 3)]
print("ran", json.dumps([strategy.round, uplink_bytes]))
"""
"""Prints the rounds, and the bytes sent up until the end of each of the first three."""


def program(section: str) -> str:
    """Return the recipe of a section, after what it needs."""
    (recipe,) = re.findall(rf"^## {section}\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return BEFORE + str(recipe)


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """Flower's log, which a recipe changes."""
    log = logging.getLogger("flwr")
    level, handlers = log.level, log.handlers.copy()
    yield log
    log.setLevel(level)
    for handler in {*log.handlers} - {*handlers}:
        log.removeHandler(handler)
        handler.close()


def run_here(section: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the recipe of a section in this process and in `folder`; return its variables."""
    (folder / "recipe.py").write_text(program(section))
    monkeypatch.chdir(folder)
    return runpy.run_path("recipe.py")


def run(section: str, folder: Path, after: str = "") -> tuple[int, list[int], Any]:
    """Run the recipe of a section, then `after`, in `folder`; return its rounds, bytes, and what `after` prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program(section) + AFTER + after],
        cwd=folder,
        env={
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "HOME": str(folder),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "WANDB_ERROR_REPORTING": "false",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rounds, uplink_bytes = json.loads(re.findall(r"^ran (.*)$", done.stdout, re.MULTILINE)[0])
    found = re.findall(r"^found (.*)$", done.stdout, re.MULTILINE)
    return rounds, uplink_bytes, json.loads(found[0]) if found else None


def need(package: str) -> None:
    """Skip the test if a tracker is not installed."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package around it
        found = None
    if found is None:
        pytest.skip(f"{package} is not installed; `pip install {package}` lets this test run")


@pytest.mark.usefixtures("log")
def test_flowers_log_has_a_line_for_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_here("Flower's log", tmp_path, monkeypatch)["strategy"].round == 3
    lines = re.findall(
        r"^round (\d): \d\.\d\d MB so far, \d+\.\d times fewer$", (tmp_path / "run.log").read_text(), re.M
    )
    assert lines == ["1", "2", "3"]


@pytest.mark.usefixtures("log")
@pytest.mark.filterwarnings("default")  # of the library
def test_tensorboard_has_the_numbers_of_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("tensorboard")
    ledger = run_here("TensorBoard", tmp_path, monkeypatch)["strategy"].ledger
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator("runs/tensorboard").Reload()
    found = [(one.step, one.value) for one in events.Scalars("total/uplink_bytes")]
    uplink_bytes = accumulate(ledger.of_round(number).uplink_bytes for number in (1, 2, 3))
    assert found == list(enumerate(uplink_bytes, start=1))


def test_mlflow_has_the_numbers_of_each_round_and_the_compressors(tmp_path: Path) -> None:
    need("mlflow")
    read = """
last = mlflow.last_active_run()
history = mlflow.MlflowClient().get_metric_history(last.info.run_id, "total/uplink_bytes")
print("found", json.dumps([last.data.params["uplink"], str(strategy.uplink), [[one.step, one.value] for one in history]]))
"""
    _, uplink_bytes, (logged, uplink, found) = run("MLflow", tmp_path, read)
    assert found == [[number, size] for number, size in enumerate(uplink_bytes, start=1)]
    assert logged == uplink


def test_an_offline_run_of_wandb_has_the_numbers_of_each_round(tmp_path: Path) -> None:
    need("wandb")
    _, uplink_bytes, _ = run("Weights & Biases", tmp_path)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    numbers = re.findall(rb"total/uplink_bytes\x82\x01.(\d+)", file.read_bytes())  # fields of protobuf, with a length
    assert [int(one) for one in dict.fromkeys(numbers)] == uplink_bytes  # each is in the history and in the summary


def test_opentelemetry_has_a_span_for_each_round(tmp_path: Path) -> None:
    need("opentelemetry.sdk")
    read = """
import re
spans = json.loads("[" + re.sub(r"}\\s*{", "},{", open("spans.json").read()) + "]")
rows = [[one["name"], one["attributes"]["total/uplink_bytes"], one["start_time"], one["end_time"]] for one in spans]
print("found", json.dumps(rows))
"""
    _, uplink_bytes, found = run("OpenTelemetry", tmp_path, read)
    assert [row[:2] for row in found] == [
        [f"round {number}", size] for number, size in enumerate(uplink_bytes, start=1)
    ]
    assert all(row[2] <= row[3] for row in found)
    assert [row[2] for row in found[1:]] == [row[3] for row in found[:-1]], "one span after the other"


@pytest.mark.usefixtures("log")
def test_a_run_stops_early_with_the_model_of_its_last_complete_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_here("Stop early", tmp_path, monkeypatch)
    assert found["strategy"].round < 1000
    assert found["strategy"].ledger.sent_bytes > 1_000_000
    assert "layer.weight" in found["model"]
