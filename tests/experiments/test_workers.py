"""Processes run cells; one that dies takes only its own cell with it."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from experiments.workers import Event, Failure, Finished, Step, run_cells
from tests.experiments.cells import cell


def children() -> list[int]:
    return [process.pid for process in multiprocessing.active_children() if process.pid is not None]


def test_a_process_that_is_killed_costs_its_cell_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # one that is killed leaves its files
    endless, first, second = cell(iterations=10**7), cell(), cell(seed=1)
    events: list[Event] = []
    for event in run_cells([endless, first, second], "", 1):
        if not isinstance(event, Step):
            events.append(event)
        elif event.cell == endless:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
    assert [(type(event), event.cell) for event in events] == [
        (Failure, endless),
        (Finished, first),
        (Finished, second),
    ]
    assert events[0] == Failure(
        endless, "its process was killed, as systems do where memory runs out; fewer --workers need less"
    )
    assert children() == []


def test_no_cells_need_no_processes() -> None:
    assert list(run_cells([], "", 2)) == []
