"""Runs the cells that are missing, on all cores, and adds each to the results as soon as it is done."""

import fcntl
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from benchmarks.study.plan import Cell
from benchmarks.study.results import Row, read_rows, write_csv
from benchmarks.study.source import StudyError

TOLD_S = 0.5
"""Seconds between two words of a worker on how far it is."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that did not come to its end, and why."""

    cell: Cell
    reason: str


class Results:
    """The CSV file of a study: it is whole at any time, and holds the cells that are done."""

    def __init__(self, path: Path, order: Sequence[str] = ()) -> None:
        """Read the file, where there is one; raises `ValueError` for one that is no study's.

        Cells are written in `order`; those that are not in it, of a study that was another one before, follow.
        """
        self.path = path
        self.cells: dict[str, list[Row]] = {}
        self._order = {name: place for place, name in enumerate(order)}
        for row in read_rows(path) if path.exists() else []:
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
        except OSError:
            raise StudyError(
                f"{folder} is in use by another run of a study; wait for it, or name another --out"
            ) from None
        yield


def run_all(
    cells: Sequence[Cell], data_dir: str, workers: int, results: Results, told: Callable[[Cell, int], None]
) -> list[Failure]:
    """Run `cells` in `workers` processes; return those that failed.  `told` hears how many rounds of a cell are done.

    What is running when an exception comes, as `KeyboardInterrupt`, is stopped and left out.
    """
    context = multiprocessing.get_context("spawn")
    words: SimpleQueue[tuple[int, int]] = context.SimpleQueue()
    failures = []
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(words,))
    try:
        waiting: dict[Future[list[Row]], Cell] = {
            pool.submit(_work, number, cell, data_dir): cell for number, cell in enumerate(cells)
        }
        while waiting:
            done, _ = wait(waiting, timeout=TOLD_S, return_when=FIRST_COMPLETED)
            while not words.empty():
                number, rounds = words.get()
                told(cells[number], rounds)
            for future in done:
                cell = waiting.pop(future)
                try:
                    results.add(future.result())
                except Exception as error:  # what a run died of is the run's matter; the others go on
                    failures.append(Failure(cell, f"{type(error).__name__}: {error}"))
                told(cell, cell.rounds)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
    return failures


_words: "SimpleQueue[tuple[int, int]] | None" = None


def _begin(words: "SimpleQueue[tuple[int, int]]") -> None:
    """Set a worker up: Ctrl-C is the parent's matter, and one thread is enough for small models."""
    global _words
    _words = words
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    import torch

    torch.set_num_threads(1)


def _work(number: int, cell: Cell, data_dir: str) -> list[Row]:
    from benchmarks.study.cell import run_cell

    last = 0.0

    def done(rounds: int) -> None:
        nonlocal last
        if _words is not None and time.monotonic() - last > TOLD_S:
            last = time.monotonic()
            _words.put((number, rounds))

    return run_cell(cell, data_dir, done)
