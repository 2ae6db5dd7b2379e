"""How far a study is, for who waits for it: a line for each cell that ends, and below them a bar where there is a terminal."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from experiments.configuration import Cell
from experiments.network import format_duration
from experiments.plan import Plan
from experiments.workers import Event, Failure, Finished, Step


class Watch:
    """Hears of the events of a study's cells, and tells of them."""

    def __init__(self, plan: Plan, cells: Sequence[Cell], progress: Progress) -> None:
        """Tell of `cells`, those of the study that are to be run."""
        self._plan = plan
        self._progress = progress
        self._all = len(cells)
        self._whole = sum(cell.work for cell in cells)
        self._bar: TaskID = progress.add_task("", total=self._whole)
        self._ended = 0
        self._work = 0.0
        self._running: dict[str, float] = {}
        self._since = time.monotonic()
        self._show()

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        cell = event.cell
        if isinstance(event, Step):
            self._running[cell.name] = cell.work * event.rounds / cell.rounds
        else:
            self._running.pop(cell.name, None)
            self._work += cell.work
            self._ended += 1
            said = f"{self._ended} of {self._all}, {self._left()}: {self._plan.describe(cell)}: {_outcome(event)}"
            self._progress.console.out(said, highlight=False)
        self._show()

    def _show(self) -> None:
        done = self._work + sum(self._running.values())
        description = f"{self._ended} of {self._all} cells, {self._left()}"
        self._progress.update(self._bar, completed=done, description=description)

    def _left(self) -> str:
        """Return the time left at the speed so far."""
        done = self._work + sum(self._running.values())
        if not done:
            return "no time known yet"
        return f"{format_duration((time.monotonic() - self._since) * (self._whole / done - 1))} left"


@contextmanager
def watched(plan: Plan, cells: Sequence[Cell], console: Console) -> Iterator[Watch]:
    """Show how far `cells` are on `console`."""
    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %, since"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Watch(plan, cells, progress)


def _outcome(event: Finished | Failure) -> str:
    if isinstance(event, Failure):
        return f"failed: {event.reason}"
    accuracy = event.rows[-1].accuracy
    return "diverged" if accuracy is None else f"accuracy {accuracy:.1%}"
