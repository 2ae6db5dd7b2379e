"""A study shows a line for each cell that ends, and a bar on a terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from experiments.__main__ import show_progress
from experiments.plan import Plan, read_plan
from experiments.runner import Event, Failure, Finished
from tests.experiments.rows import cell

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
    """Return the output for a study of four cells: one ends well, one diverges, one fails, and one has not ended."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    first, second, third, _ = plan.cells
    events: list[Event] = [
        Finished(first, cell([0.1, 0.875])),
        Finished(second, cell([0.1, None])),
        Failure(third, "no samples"),
    ]
    assert list(show_progress(events, plan, plan.cells, console)) == events
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_is_a_line_for_each_cell_that_ends(plan: Plan) -> None:
    assert shown(plan, terminal=False).splitlines() == [
        "1 of 4: STC [a], seed 0: accuracy 87.5%",
        "2 of 4: dense, seed 0: diverged",
        "3 of 4: STC [a], seed 1: failed: no samples",
    ]


def test_on_a_terminal_there_is_a_bar_too(plan: Plan) -> None:
    text = shown(plan, terminal=True)
    assert "3 of 4 cells" in text
    assert "75 %" in text
    assert "dense, seed 0: diverged" in text
