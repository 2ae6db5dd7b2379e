"""Runs the cells that are missing, and adds each to the results as soon as it is done."""

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.study.configuration import Cell
from benchmarks.study.results import Row, read_rows, write_csv
from benchmarks.study.source import StudyError
from benchmarks.study.workers import Event, Failure, Finished, run_cells


class Results:
    """The CSV file of a study: it is whole at any time, and holds the cells that are done."""

    def __init__(self, path: Path, order: Sequence[str] = ()) -> None:
        """Read the file, where there is one; raises `StudyError` for one that is no study's.

        Cells are written in `order`; those that are not in it, of a study that was another one before, follow.
        """
        self.path = path
        self.cells: dict[str, list[Row]] = {}
        self._order = {name: place for place, name in enumerate(order)}
        try:
            rows = read_rows(path) if path.exists() else []
        except ValueError as error:
            raise StudyError(str(error)) from None
        for row in rows:
            self.cells.setdefault(row.cell, []).append(row)

    def add(self, rows: Sequence[Row]) -> None:
        """Add a cell, and write the file anew."""
        self.cells[rows[0].cell] = list(rows)
        ordered = sorted(self.cells, key=lambda name: self._order.get(name, len(self._order)))
        write_csv(self.path, [row for name in ordered for row in self.cells[name]])


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; raise `StudyError` where another one does."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(
                f"{folder} is in use by another run of a study; wait for it, or name another --out"
            ) from None
        yield


def run_all(
    cells: Sequence[Cell], data_dir: str, workers: int, results: Results, told: Callable[[Event], None]
) -> list[Failure]:
    """Run `cells` in so many processes, and add them to `results`; return those that failed.

    `told` hears all that happens.  What is running when an exception comes, as `KeyboardInterrupt`, is stopped and left out.
    """
    failures = []
    with closing(run_cells(cells, data_dir, workers)) as events:
        for event in events:
            if isinstance(event, Finished):
                results.add(event.rows)
            elif isinstance(event, Failure):
                failures.append(event)
            told(event)
    return failures
