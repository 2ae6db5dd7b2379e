"""Processes that run cells, one at a time each.

One that dies, as where the system kills it because memory runs out, costs the cell that it was running and no other;
`concurrent.futures` would give up on all that are left.
"""

import logging
import multiprocessing
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker

import torch

from experiments.cell import run_cell
from experiments.configuration import Cell
from experiments.results import Row

TOLD_S = 0.5
"""Seconds between two words of a worker on how far it is."""
PATIENCE_S = 5.0
"""Seconds that a worker has to end when it is told to."""


@dataclass(frozen=True, slots=True)
class Step:
    """A cell is so many rounds on its way."""

    cell: Cell
    rounds: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A cell has come to its end, and measured this."""

    cell: Cell
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell did not come to its end, and why."""

    cell: Cell
    reason: str


Event = Step | Finished | Failure


def run_cells(cells: Sequence[Cell], data_dir: str, count: int) -> Generator[Event, None, None]:
    """Run `cells`, in order, in `count` processes; yield what happens: each cell ends with a `Finished` or a `Failure`.

    The processes end with the generator, whatever ends that.
    """
    waiting = deque(cells)
    crew: list[Worker] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < count:
                crew.append(Worker(data_dir, waiting.popleft()))
            ready = connection.wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe in ready]:
                event = worker.hear()
                if not isinstance(event, Step):
                    if waiting and worker.process.is_alive():
                        worker.begin(waiting.popleft())
                    else:
                        crew.remove(worker)
                        worker.close()
                yield event
    finally:
        for worker in crew:
            worker.process.terminate()
        for worker in crew:
            worker.close()


class Worker:
    """A process, the pipe to it, and the cell that it runs."""

    def __init__(self, data_dir: str, cell: Cell) -> None:
        """Start the process with its first cell."""
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, data_dir), daemon=True)
        resource_tracker.ensure_running()  # starting it would let Ctrl-C through
        # Ctrl-C on a terminal goes to all its processes, but what to do about it is the parent's matter.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        there.close()  # so that the pipe breaks where the process dies
        self.begin(cell)

    def begin(self, cell: Cell) -> None:
        """Let the process run a cell."""
        self.cell = cell
        with suppress(OSError):  # of a process that has died, `hear` tells
            self.pipe.send(cell)

    def hear(self) -> Event:
        """Return what the process says, or that it has died."""
        try:
            event: Event = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return Failure(self.cell, _death(self.process.exitcode or 0))
        return event

    def close(self) -> None:
        """End the process, if it has not ended, and wait for that."""
        self.pipe.close()
        self.process.join(PATIENCE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed, as systems do where memory runs out; fewer --workers need less"
    return f"its process died of {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"


def _serve(pipe: "connection.Connection[Event, Cell]", data_dir: str) -> None:
    """Run the cells that come through the pipe, until it closes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # an ordinary exit: temporary folders go
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's word for a run that diverges; its rows say so
    torch.set_num_threads(1)  # one is enough for small models, and the other cores have cells of their own
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended, or needs no more
        while True:
            pipe.send(_run(pipe.recv(), data_dir, pipe))


def _run(cell: Cell, data_dir: str, pipe: "connection.Connection[Event, Cell]") -> Event:
    last = time.monotonic()

    def done(rounds: int) -> None:
        nonlocal last
        if time.monotonic() - last > TOLD_S:
            last = time.monotonic()
            pipe.send(Step(cell, rounds))

    try:
        return Finished(cell, run_cell(cell, data_dir, done))
    except Exception as error:  # what a run died of is the run's matter; the others go on
        said = " ".join(str(error).split())
        return Failure(cell, said if isinstance(error, ValueError) else f"{type(error).__name__}: {said}")
