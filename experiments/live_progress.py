"""The progress of a study on the console: a line for each cell that ends, and a bar on a terminal."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.configuration import Cell
from experiments.plan import Plan
from experiments.runner import Event, Failure

COLUMNS = (
    TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %, elapsed"),
    TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
)  # fmt: skip


@contextmanager
def live_progress(plan: Plan, cells: Sequence[Cell], console: Console) -> Iterator[Callable[[Event], None]]:
    """Give a function that shows each event of these cells on `console`; the bar is in proportion to their work."""
    with Progress(*COLUMNS, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"0 of {len(cells)} cells", total=sum(cell.work for cell in cells))
        ended = 0

        def show(event: Event) -> None:
            nonlocal ended
            ended += 1
            line = f"{ended} of {len(cells)}: {plan.describe(event.cell)}: {_outcome(event)}"
            progress.console.out(line, highlight=False)
            progress.update(bar, advance=event.cell.work, description=f"{ended} of {len(cells)} cells")

        yield show


def _outcome(event: Event) -> str:
    if isinstance(event, Failure):
        return f"failed: {event.reason}"
    accuracy = float(event.rows["accuracy"].iloc[-1])
    return "diverged" if math.isnan(accuracy) else f"accuracy {accuracy:.1%}"
