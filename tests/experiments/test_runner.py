"""Cells run in processes; whatever happens to one, the others end with their results."""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from experiments import runner
from experiments.configuration import Cell
from experiments.plan import StudyError
from experiments.runner import DIED, Event, Failure, Finished, Workers, ray_workers, run_cells
from tests.experiments.cells import cell

UNEVEN = "dirichlet(alpha=0.03, min_size=100)"
"""A partition that seed 0 allows, and seed 1 does not."""


def outcomes(events: list[Event]) -> dict[Cell, type[Event]]:
    """Return the kind of outcome of each cell."""
    return {event.cell: type(event) for event in events}


LEFT_BEHIND: list[NDArray[np.float64]] = []
"""What the cells of a process leave in its memory, in `grow`."""


@pytest.mark.system
def test_a_cell_that_fails_or_diverges_ends_alone() -> None:
    fits, fails = cell(partition=UNEVEN, seed=0), cell(partition=UNEVEN, seed=1)
    diverges, last = cell(model="mlp", learning_rate=1e6), cell(seed=2)
    events = {event.cell: event for event in run_cells([fits, fails, diverges, last], "", Workers(2))}
    assert outcomes(list(events.values())) == {fits: Finished, fails: Failure, diverges: Finished, last: Finished}
    failure, divergence, finish = events[fails], events[diverges], events[last]
    assert isinstance(failure, Failure)
    assert failure.reason.startswith(f"{UNEVEN} for 10 clients: ")
    assert isinstance(divergence, Finished)
    assert isinstance(finish, Finished)
    assert divergence.rows["accuracy"].isna().tolist()[-1]
    assert finish.rows["accuracy"].notna().all()


def kill_long_runs(scratch: Path, stop: threading.Event) -> None:
    """Kill all worker processes whenever a run in `scratch` has come to its tenth round."""
    while not stop.wait(0.05):
        for record in scratch.glob("*/cell/rounds.jsonl"):
            if len(record.read_bytes().splitlines()) >= 10:
                for process in psutil.Process().children():
                    with suppress(psutil.Error):  # it has ended
                        if any("popen_loky" in word for word in process.cmdline()):
                            process.kill()
                shutil.rmtree(record.parents[1])


@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_is_killed_costs_its_cell_and_no_other(workers: int, tmp_path: Path) -> None:
    endless, others = cell(iterations=10**7), [cell(seed=seed) for seed in (1, 2)]
    stop = threading.Event()
    killer = threading.Thread(target=kill_long_runs, args=(tmp_path, stop))
    killer.start()
    try:
        events = list(run_cells([endless, *others], "", Workers(workers), tmp_path))
    finally:
        stop.set()
        killer.join()
    assert outcomes(events) == {endless: Failure, **dict.fromkeys(others, Finished)}
    (failure,) = [event for event in events if isinstance(event, Failure)]
    assert failure.reason == DIED


def test_a_process_ends_whose_parent_died_before_it_could_look() -> None:
    # No process is its own parent, so this one has another parent than the one that it is told.
    code = "import os, time; from experiments.runner import _prepare; _prepare(os.getpid()); time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def grow(run: Cell, _data_dir: str, _scratch: Path | None) -> Event:
    """Stand for a cell that leaves its process larger by 400 MB, unless it is the first one."""
    LEFT_BEHIND[:] = [np.ones(50_000_000 if LEFT_BEHIND else 1)]
    time.sleep(1.2)  # joblib looks at the memory once a second
    return Failure(run, str(os.getpid()))


@pytest.mark.system
def test_a_process_that_grows_is_replaced_without_a_word(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(runner, "_run", grow)
    events = list(run_cells([cell(seed=seed) for seed in range(8)], "", Workers(2)))
    assert len({event.reason for event in events if isinstance(event, Failure)}) > 2
    assert [str(warning.message) for warning in recwarn] == []


def test_no_cells_need_no_processes() -> None:
    assert list(run_cells([], "", Workers(2))) == []


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(StudyError, match="--ray needs Ray"):
        ray_workers("local", None)
