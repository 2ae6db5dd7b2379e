"""A cell is a complete run of the app, and its rows are the app's own records, summed up."""

import json
import math
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from experiments.cell import run_cell
from experiments.configuration import Cell, Value
from experiments.results import SLOWEST, TRAFFIC
from fedcomp.errors import DivergedError, NonFiniteError
from fedcomp.flower import LocalGrid
from server.app import app as server_app
from tests.experiments.cells import cell


def app_records(one: Cell, folder: Path) -> list[dict[str, Any]]:
    """Return the records of the rounds when the app runs on a grid without shared memory."""
    config = {**one.config(), "runs-dir": str(folder), "run-name": "app"}
    server_app(LocalGrid(client_app, one.clients, config), Context(1, 0, {}, RecordDict(), dict(config)))
    return [json.loads(line) for line in (folder / "app" / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("undrawn")
def test_rows_are_the_evaluated_rounds_of_the_app_with_sums_since_the_start(tmp_path: Path) -> None:
    one = cell(iterations=50, evaluate_every=20)
    rows = run_cell(one, "")
    records = app_records(one, tmp_path)
    assert rows[["round", "iterations"]].to_numpy().tolist() == [[0, 0], [2, 20], [4, 40], [5, 50]]
    for name in ("accuracy", "loss"):
        assert rows[name].tolist() == [records[number][name] for number in rows["round"]]
    for name in (*TRAFFIC, *SLOWEST):
        sums = list(accumulate(record[name] for record in records))
        assert rows[name].tolist() == [sums[number] for number in rows["round"]]
    assert rows["uplink_bytes"].is_monotonic_increasing
    assert rows["client_seconds"].is_monotonic_increasing
    assert rows["client_seconds"].iloc[0] == 0 < rows["client_seconds"].iloc[-1]
    assert rows["server_seconds"].iloc[-1] > 0


def test_rows_hold_the_settings_of_the_cell() -> None:
    one = cell(seed=3, batch_size=7, momentum=0.5, partition="iid()", weighting="uniform", iterations=10)
    row = run_cell(one, "").iloc[-1]
    assert (row["method"], row["dataset"], row["model"], row["partition"]) == ("STC", "digits", "logistic", "iid()")
    assert (row["clients"], row["participation"], row["local_steps"], row["batch_size"]) == (10, 0.2, 10, 7)
    assert (row["learning_rate"], row["momentum"], row["seed"], row["strategy"]) == (0.1, 0.5, 3, "fedavg")
    assert (row["uplink"], row["downlink"], row["weighting"]) == ("auto", "auto", "uniform")
    assert row["cell"] == one.name


def test_the_same_cell_gives_the_same_rows_whatever_ran_before() -> None:
    first = run_cell(cell(), "")
    run_cell(cell(seed=1, model="mlp"), "")
    seconds = ["client_seconds", "server_seconds"]
    pd.testing.assert_frame_equal(
        run_cell(cell(), "").drop(columns=seconds), first.drop(columns=seconds), check_exact=True
    )


@pytest.mark.parametrize(
    ("settings", "ends_in"),
    [
        ({"learning_rate": 1e3}, 2),  # the first round has a loss
        ({"learning_rate": 1e6}, 1),  # the loss is no number
        ({"strategy": "fedavgm(server_learning_rate=1e6)", "downlink": "dense()"}, 4),  # the server's step diverges
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_diverges_ends_with_a_row_without_accuracy(settings: dict[str, Value], ends_in: int) -> None:
    rows = run_cell(cell(iterations=50, **{"model": "mlp", **settings}), "")
    assert rows["round"].tolist() == list(range(ends_in + 1))
    assert rows["accuracy"].notna().tolist() == [True] * ends_in + [False]
    assert math.isnan(rows["loss"].iloc[-1])
    assert rows["uplink_bytes"].iloc[-1] == rows["uplink_bytes"].iloc[-2]  # the round that failed is not counted


@pytest.mark.parametrize("error", [DivergedError("beyond float32"), NonFiniteError(7, math.inf)], ids=["any", "entry"])
def test_a_node_whose_numbers_diverge_ends_the_run(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(*_: object, **__: object) -> float:
        raise error

    monkeypatch.setattr("clients.app.train_locally", diverges)
    rows = run_cell(cell(), "")
    assert rows["round"].tolist() == [0, 1]
    assert rows["accuracy"].isna().tolist() == [False, True]


def test_a_node_that_fails_for_another_reason_ends_the_run_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> float:
        raise OSError("the disk is full")

    monkeypatch.setattr("clients.app.train_locally", breaks)
    with pytest.raises(RuntimeError, match=r"node \d+ failed: .*the disk is full"):
        run_cell(cell(), "")


def test_a_missing_device_is_an_error() -> None:
    with pytest.raises(ValueError, match="cuda:99"):
        run_cell(cell(device="cuda:99"), "")


def test_a_partition_that_a_seed_does_not_allow_is_an_error() -> None:
    uneven = cell(partition="dirichlet(alpha=0.001, min_size=100)", clients=13)
    with pytest.raises(ValueError, match=r"dirichlet\(alpha=0.001, min_size=100\) for 13 clients: "):
        run_cell(uneven, "")


def test_a_run_prints_nothing_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_cell(cell(iterations=10), "")
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []
