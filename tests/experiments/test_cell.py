"""A cell is a whole run of the app, and its rows are what the app has on record, summed up."""

import json
import math
import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from clients.app import app as client_app
from experiments.cell import COUNTED, run_cell
from experiments.configuration import Cell, Value
from experiments.results import Row
from fedcomp.errors import DivergedError, NonFiniteError
from fedcomp.flower import LocalGrid
from server.app import app as server_app
from tests.experiments.cells import cell


def app_records(one: Cell, folder: Path) -> list[dict[str, Any]]:
    """Return the rounds that the app writes down, when it is run on a grid without shared memory."""
    config = {**one.config(), "runs-dir": str(folder), "run-name": "app"}
    server_app(LocalGrid(client_app, one.clients, config), Context(1, 0, {}, RecordDict(), dict(config)))
    return [json.loads(line) for line in (folder / "app" / "rounds.jsonl").read_text().splitlines()]


def test_rows_are_the_evaluated_rounds_of_the_app_with_sums_since_the_start(tmp_path: Path) -> None:
    one = cell(iterations=50, evaluate_every=20)
    told: list[int] = []
    rows = run_cell(one, "", told.append)
    records = app_records(one, tmp_path)
    assert told == [1, 2, 3, 4, 5]
    assert [(row.round, row.iterations) for row in rows] == [(0, 0), (2, 20), (4, 40), (5, 50)]
    for row in rows:
        assert (row.accuracy, row.loss) == (records[row.round]["accuracy"], records[row.round]["loss"])
        for name in COUNTED:
            assert getattr(row, name) == list(accumulate(record[name] for record in records))[row.round]
    assert rows[-1].uplink_bytes > rows[1].uplink_bytes > rows[0].uplink_bytes == 0
    assert rows[-1].client_seconds > rows[1].client_seconds > rows[0].client_seconds == 0
    assert rows[-1].server_seconds > 0


def test_rows_hold_the_settings_of_the_cell() -> None:
    row = run_cell(cell(seed=3, batch_size=7, momentum=0.5, partition="iid()", iterations=10), "")[-1]
    assert (row.method, row.dataset, row.model, row.partition) == ("STC", "digits", "logistic", "iid()")
    assert (row.clients, row.participation, row.local_steps, row.batch_size) == (10, 0.2, 10, 7)
    assert (row.learning_rate, row.momentum, row.seed, row.strategy) == (0.1, 0.5, 3, "fedavg")
    assert (row.uplink, row.downlink) == ("stc(density=0.02)", "stc(density=0.02)")
    assert row.cell == cell(seed=3, batch_size=7, momentum=0.5, partition="iid()", iterations=10).name


def measured(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(row.round, row.accuracy, row.loss, row.uplink_bytes, row.downlink_bytes) for row in rows]


def test_the_same_cell_gives_the_same_rows_whatever_ran_before() -> None:
    first = measured(run_cell(cell(), ""))
    run_cell(cell(seed=1, model="mlp"), "")
    assert measured(run_cell(cell(), "")) == first


@pytest.mark.parametrize(
    ("settings", "ends_in"),
    [
        ({"learning_rate": 1e20}, 1),  # no node has numbers to send
        ({"learning_rate": 1e6}, 2),  # the first round was still within float32
        ({"strategy": "fedadam(eta=1e38)", "model": "logistic"}, 2),  # the nodes are well, and the server's step is not
        ({"strategy": "fedavgm(server_learning_rate=1e39)", "downlink": "dense()"}, 1),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_diverges_ends_with_a_row_without_accuracy(settings: dict[str, Value], ends_in: int) -> None:
    rows = run_cell(cell(iterations=50, **{"model": "mlp", **settings}), "")
    last = rows[-1]
    assert [row.round for row in rows] == list(range(ends_in + 1))
    assert (last.accuracy, last.loss) == (None, None)
    assert all(row.accuracy is not None and math.isfinite(row.accuracy) for row in rows[:-1])
    assert last.uplink_bytes == rows[-2].uplink_bytes  # the round that failed is not counted


@pytest.mark.parametrize("error", [DivergedError("beyond float32"), NonFiniteError(7, math.inf)], ids=["any", "entry"])
def test_a_node_that_says_that_its_numbers_diverged_ends_the_run_so(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*_: object) -> float:
        raise error

    monkeypatch.setattr("clients.app.train_locally", diverges)
    *_, last = run_cell(cell(), "")
    assert (last.round, last.accuracy) == (1, None)


def test_a_node_that_fails_for_another_reason_ends_the_run_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> float:
        raise OSError("the disk is full")

    monkeypatch.setattr("clients.app.train_locally", breaks)
    with pytest.raises(RuntimeError, match=r"node \d+ failed: .*the disk is full"):
        run_cell(cell(), "")


def test_a_device_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"device is 'cuda:99'; this node"):
        run_cell(cell(device="cuda:99"), "")


def test_a_partition_that_a_seed_cannot_meet_is_a_sentence() -> None:
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
