"""Who waits for a study reads a line for each cell that ends, and sees a bar where there is a terminal."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from experiments.live_progress import watched
from experiments.plan import Plan, read_plan
from experiments.workers import Failure, Finished, Step
from tests.experiments.rows import ROW

STUDY = """title = "x"
[run]
clients = 10
clients-per-round = 5
iterations = 4
evaluate-every = 1
local-steps = 1
[grid]
seed = [0, 1]
[[method]]
label = "STC [a]"
[[method]]
label = "dense"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "study.toml").write_text(STUDY)
    return read_plan(tmp_path / "study.toml")


def shown(plan: Plan, *, terminal: bool) -> str:
    """Return what is shown of a study of four cells: one is well, one diverges, one fails, and one has begun."""
    screen = Console(file=io.StringIO(), force_terminal=terminal, width=40)
    first, second, third, fourth = plan.cells
    with watched(plan, plan.cells, screen) as told:
        told(Step(first, 2))
        told(Finished(first, [replace(ROW, accuracy=0.1), replace(ROW, accuracy=0.875)]))
        told(Finished(second, [replace(ROW, accuracy=0.1), replace(ROW, accuracy=None)]))
        told(Failure(third, "no samples"))
        told(Step(fourth, 1))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_without_a_terminal_there_is_a_line_for_each_cell_that_ends(plan: Plan) -> None:
    lines = shown(plan, terminal=False).splitlines()
    assert [re.sub(", .* left: ", ": ", line) for line in lines] == [
        "1 of 4: STC [a], seed 0: accuracy 87.5%",
        "2 of 4: dense, seed 0: diverged",
        "3 of 4: STC [a], seed 1: failed: no samples",
    ]


def test_on_a_terminal_there_is_a_bar_too(plan: Plan) -> None:
    text = shown(plan, terminal=True)
    assert "3 of 4 cells" in text
    assert "81 %" in text  # three cells, and one round of four of the last
    assert "dense, seed 0: diverged" in text
