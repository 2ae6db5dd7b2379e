"""Runs the cells that are missing, and adds each to the results as soon as it is done."""

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from experiments.configuration import Cell
from experiments.results import Row, read_rows, write_csv
from experiments.source import StudyError
from experiments.workers import Event, Failure, Finished, run_cells


class Results:
    """The CSV file of a study: it is whole at any time, and holds the cells that are done."""

    def __init__(self, path: Path, order: Sequence[str] = ()) -> None:
        """Read the file, where there is one; raises `StudyError` for one that is no study's.

        Cells are written in `order`; those that are not in it, of a study that was another one before, follow.
        """
        self.path = path
        self.cells = read_cells(path) if path.exists() else {}
        self._order = {name: place for place, name in enumerate(order)}

    def add(self, rows: Sequence[Row]) -> None:
        """Add a cell, and write the file anew."""
        self.cells[rows[0].cell] = list(rows)
        self._write()

    def reuse(self, others: Mapping[str, list[Row]]) -> int:
        """Add those of `others`, cells of other studies, that are in the order and missing; return how many."""
        added = {name: rows for name, rows in others.items() if name in self._order and name not in self.cells}
        if added:
            self.cells |= added
            self._write()
        return len(added)

    def _write(self) -> None:
        ordered = sorted(self.cells, key=lambda name: self._order.get(name, len(self._order)))
        write_csv(self.path, [row for name in ordered for row in self.cells[name]])


def read_cells(path: Path) -> dict[str, list[Row]]:
    """Return the cells in a table of results, by name; raise `StudyError` for a file that is no such table."""
    cells: dict[str, list[Row]] = {}
    try:
        for row in read_rows(path):
            cells.setdefault(row.cell, []).append(row)
    except ValueError as error:
        raise StudyError(str(error)) from None
    return cells


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
