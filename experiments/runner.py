"""Runs cells in parallel: in processes of this machine, or on the machines of a Ray cluster.

A process that dies, for example because memory runs out, costs the cell that it ran and no other.
"""

import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed, register_parallel_backend

from experiments.cell import run_cell
from experiments.configuration import Cell
from experiments.plan import StudyError

DIED = "its process died, as happens when memory runs out; fewer --workers need less memory"
PARENT_POLL_S = 1.0
REPLACED = "A worker stopped while some jobs were given to the executor"
"""joblib's warning of a process that holds 300 MB more than after its first cell.  It goes on with another one."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A cell has ended with these rows of results."""

    cell: Cell
    rows: pd.DataFrame


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell has failed, for this reason."""

    cell: Cell
    reason: str


Event = Finished | Failure


@dataclass(frozen=True, slots=True)
class Workers:
    """Where cells run: `count` processes at a time, on this machine or on a Ray cluster."""

    count: int
    ray: bool = False
    deaths: tuple[type[Exception], ...] = (BrokenProcessPool,)
    """The errors that mean that a process has died."""

    def run(self, cells: Sequence[Cell], data_dir: str, scratch: Path | None) -> Generator[Event, None, None]:
        """Run `cells` in processes; yield the outcome of each as it comes."""
        warnings.filterwarnings("ignore", REPLACED, UserWarning)  # a later cell may be larger than the first
        processes = Parallel(
            n_jobs=max(2, self.count),  # joblib would run a single job in this process
            pre_dispatch=self.count,
            batch_size=1,
            return_as="generator_unordered",
            **(
                {"backend": "ray"}
                if self.ray
                else {"backend": "loky", "initializer": _prepare, "initargs": (os.getpid(),)}
            ),
        )
        with closing(processes(delayed(_run)(cell, data_dir, scratch) for cell in cells)) as events:
            yield from events


def ray_workers(address: str, count: int | None) -> Workers:
    """Return `count` processes, by default one for each core, of the Ray cluster at `address` ("local": a new one here).

    Raises `StudyError` if Ray is not installed or the cluster does not answer.
    """
    try:
        import ray
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError:
        raise StudyError("--ray needs Ray, which is not installed; `pip install ray` installs it") from None

    class StreamingRayBackend(RayBackend):  # type: ignore[misc]  # it has no types
        """Ray's joblib backend, which can return results as they come but does not say so."""

        supports_return_generator = True

    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise StudyError(f"--ray {address}: {' '.join(str(error).split())}") from None
    register_parallel_backend("ray", StreamingRayBackend)
    cluster: Any = ray  # it has no types
    return Workers(count or int(cluster.cluster_resources()["CPU"]), True, (cluster.exceptions.RayError,))


def run_cells(
    cells: Sequence[Cell], data_dir: str, workers: Workers, scratch: Path | None = None
) -> Generator[Event, None, None]:
    """Run `cells`, in order; yield a `Finished` or a `Failure` for each as it ends.

    When a process dies, the cells that were running start again, one at a time, to find the one that is to blame. The
    processes end with the generator. `scratch` is a folder for temporary files.
    """
    waiting = list(cells)
    suspects = 0  # the first cells of `waiting`, which ran when a process died
    while waiting:
        batch = waiting[:1] if suspects else waiting[:]
        try:
            for event in workers.run(batch, data_dir, scratch):
                waiting.remove(event.cell)
                yield event
        except workers.deaths:
            if suspects or workers.count == 1:
                yield Failure(waiting.pop(0), DIED)
            else:
                suspects = min(workers.count, len(waiting)) + 1
        suspects = max(0, suspects - 1)


@cache
def _prepare(parent: int | None = None) -> None:
    if parent is not None:  # it names itself: where it has died by now, the process has another parent already
        threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent handles it
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns of a run that diverges; its rows say so
    torch.set_num_threads(1)  # enough for small models, and the other cores have their own cells


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has died: a study that is killed leaves no workers behind."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    os._exit(1)


def _run(cell: Cell, data_dir: str, scratch: Path | None) -> Event:
    _prepare()
    try:
        return Finished(cell, run_cell(cell, data_dir, scratch))
    except Exception as error:  # noqa: BLE001 - a cell's error ends that cell alone
        text = " ".join(str(error).split())
        return Failure(cell, text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}")
