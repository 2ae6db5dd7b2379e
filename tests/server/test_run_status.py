"""The status file of a run and its nodes, while the run goes on and after it."""

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.run import RunNotRunningException

from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.local_grid import Fault
from server.folder import RunFolder
from server.run_status import MIN_PAUSE_S, RunStatus, mark_stopped
from tests.flower import toy

NODES = 3


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def strategy() -> CompressedStrategy:
    return CompressedStrategy(FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES))


def run(started: CompressedStrategy, grid: LocalGrid, rounds: int) -> None:
    started.start(grid, started.arrays if started.round else toy.model(), num_rounds=rounds)


def written(folder: RunFolder) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(folder.nodes.read_text())
    return value


def test_each_node_has_a_row_with_its_partition_version_and_traffic(folder: RunFolder) -> None:
    grid, started = LocalGrid(toy.app(), NODES), strategy()
    grid.order(3, *2 * [Fault.LOSE_REPLY])
    run(started, grid, 2)
    RunStatus(folder, started, {1: 0, 2: 1, 9: 5}, num_rounds=8).update()
    found = written(folder)
    assert (found["state"], found["num_rounds"], found["version"]) == ("running", 8, 2)
    rows = {row["node"]: row for row in found["nodes"]}
    assert {node: (row["partition"], row["version"], row["heard"], row["absent"]) for node, row in rows.items()} == {
        1: (0, 1, 2, False),
        2: (1, 1, 2, False),
        3: (None, None, None, True),
        9: (5, None, None, False),
    }
    books = started.ledger.by_node()
    assert rows[2]["uplink_bytes"] == books[2].uplink_bytes > 0
    assert rows[3]["downlink_bytes"] == books[3].downlink_bytes > 0
    assert (rows[3]["missing"], rows[2]["missing"], rows[9]["downlink_bytes"]) == (2, 0, 0)


def test_short_rounds_write_it_once_a_second_and_the_end_of_the_run_always(folder: RunFolder) -> None:
    grid, started, clock = LocalGrid(toy.app(), NODES), strategy(), Clock()
    run(started, grid, 1)
    with RunStatus(folder, started, {}, 4, clock) as status:
        status.update()
        run(started, grid, 1)
        clock.now += MIN_PAUSE_S / 2
        status.update()
        assert written(folder)["version"] == 1
        clock.now += MIN_PAUSE_S / 2
        status.update()
        assert written(folder)["version"] == 2
        run(started, grid, 1)
        status.update()
    assert (written(folder)["state"], written(folder)["version"]) == ("completed", 3)


def test_a_run_that_raises_has_failed(folder: RunFolder) -> None:
    started = strategy()
    run(started, LocalGrid(toy.app(), NODES), 1)
    status = RunStatus(folder, started, {}, 4)
    status.update()
    with pytest.raises(RuntimeError, match="as\nordered"), status:
        raise RuntimeError("as\nordered")
    assert (written(folder)["state"], written(folder)["reason"]) == ("failed", "as ordered")


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit(143), RunNotRunningException])
def test_a_run_that_a_user_ends_was_stopped(folder: RunFolder, signal: BaseException) -> None:
    """By Ctrl-C, by SIGTERM, and by `flwr stop`, after which Flower answers the run's next call so."""
    started = strategy()
    run(started, LocalGrid(toy.app(), NODES), 1)
    status = RunStatus(folder, started, {}, 4)
    status.update()
    with pytest.raises(BaseException, match=".*"), status:
        raise signal
    assert (written(folder)["state"], written(folder)["reason"]) == ("stopped", "")


def test_a_launcher_notes_for_a_server_that_it_killed_that_the_run_was_stopped(folder: RunFolder) -> None:
    mark_stopped(folder)
    assert written(folder)["state"] == "stopped", "before the first status"
    folder.nodes.unlink()
    started = strategy()
    run(started, LocalGrid(toy.app(), NODES), 1)
    RunStatus(folder, started, {}, 4).update()
    before = written(folder)
    mark_stopped(folder)
    assert written(folder) == before | {"state": "stopped"}
    with RunStatus(folder, started, {}, 4) as status:
        status.update()
    mark_stopped(folder)
    assert written(folder)["state"] == "completed", "a run that has ended keeps its state"


def test_a_run_that_never_had_a_model_writes_nothing(folder: RunFolder) -> None:
    with RunStatus(folder, strategy(), {}, 4):
        pass
    assert not folder.nodes.exists()


def test_rows_are_in_the_order_of_the_node_ids(folder: RunFolder) -> None:
    started = strategy()
    run(started, LocalGrid(toy.app(), NODES), 1)
    RunStatus(folder, started, {8: 5}, num_rounds=8).update()
    assert [row["node"] for row in written(folder)["nodes"]] == [1, 2, 3, 8]
