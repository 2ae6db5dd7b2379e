"""A study shows a line for each cell that ends, and a bar on a terminal."""

import io
from pathlib import Path

from rich.console import Console

from experiments.__main__ import show_progress
from experiments.runner import Event, Failure, Finished
from tests.experiments.cells import RUN, plan
from tests.experiments.rows import cell

STUDY = f"title = 'x'\n{RUN}[grid]\nseed = [0, 1]\n[[method]]\nlabel = 'STC [a]'\n[[method]]\nlabel = 'dense'"


def shown(folder: Path, *, terminal: bool) -> str:
    """Return the output for a study of four cells: one ends well, one diverges, one fails, and one has not ended."""
    study = plan(folder, STUDY)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    first, second, third, _ = study.cells
    events: list[Event] = [
        Finished(first, cell([0.1, 0.875])),
        Finished(second, cell([0.1, None])),
        Failure(third, "no samples"),
    ]
    assert list(show_progress(events, study, study.cells, console)) == events
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_is_a_line_for_each_cell_that_ends(tmp_path: Path) -> None:
    assert shown(tmp_path, terminal=False).splitlines() == [
        "1 of 4: STC [a], seed 0: accuracy 87.5%",
        "2 of 4: dense, seed 0: diverged",
        "3 of 4: STC [a], seed 1: failed: no samples",
    ]


def test_on_a_terminal_there_is_a_bar_too(tmp_path: Path) -> None:
    text = shown(tmp_path, terminal=True)
    assert "3 of 4 cells" in text
    assert "75 %" in text
    assert "dense, seed 0: diverged" in text
