"""A node's memory in files, so that a device that restarts goes on where it was: a folder for each training, by its lineage."""

import re
import shutil
from collections.abc import Collection
from contextlib import ExitStack
from logging import WARNING
from pathlib import Path
from types import TracebackType
from typing import Self

from flwr.app import ConfigRecord, RecordDict

from fedcomp.flower._compat import log
from fedcomp.flower.client.client_state import ClientState, load, of_training
from fedcomp.flower.client.state_files import CORRUPTION_ERRORS, StateFiles

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_TRAININGS = 4
"""Trainings whose files stay: the newest one, and those before it that may go on."""
NAME = re.compile(r"[0-9a-f]{16}")
"""The name of a training's folder; whatever else lies beside it is left alone."""
LAST = "fedcomp.lineage"
"""The record in ``Context.state`` that says which training the Flower run belongs to."""
DAMAGED = ".damaged"


class StateFolder:
    """The files in `path`; enter it to work with them: a second process waits until the first has left."""

    def __init__(self, path: Path, records: RecordDict) -> None:
        """Use the folder `path`, made where it is not there; `records` are the node's ``Context.state``."""
        self._path = path
        self._records = records
        self._open = ExitStack()
        self._files = StateFiles(path)

    def __enter__(self) -> Self:
        """Wait for the folder; raise `ValueError` for one that cannot be used."""
        if fcntl is None:
            raise ValueError("state-dir needs locks on files, which this system does not have; leave it out")
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self._open.enter_context((self._path / ".lock").open("w"))
        except OSError as error:
            raise ValueError(
                f"state-dir is {str(self._path)!r}; a folder that can be written is needed ({error.strerror})"
            ) from None
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._open.callback(fcntl.flock, lock, fcntl.LOCK_UN)  # a child that was forked meanwhile holds the file open
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let others work with the folder."""
        self._open.close()

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of `lineage`; 0: of the Flower run's, else the one whose replica is at one of `places`.

        Places are versions and fingerprints.  What is not whole is set aside, and reported: the state is then empty, and the
        server sends a key frame.
        """
        training_id = training_id or self._last() or self._at(places)
        if not training_id:
            return load(self._records)
        self._files = StateFiles(self._path / f"{training_id:016x}")
        if self._files.written:
            try:
                return of_training(self._files.read(), training_id)
            except CORRUPTION_ERRORS as error:
                self._set_aside(training_id, error)
        return ClientState(training_id=training_id)

    def save(self, state: ClientState) -> None:
        """Write `state`, which `recall` gave, and remove all but the last trainings.

        That of a server which does not name its training, an older one, goes to ``Context.state``.
        """
        if not state.training_id:
            state.save(self._records)
            return
        self._files.write(state)
        self._records[LAST] = ConfigRecord({"lineage": f"{state.training_id:016x}"})
        others = [
            training_id for training_id in self._trainings() if training_id != state.training_id
        ]  # clocks may jump
        for old in others[MAX_TRAININGS - 1 :]:
            shutil.rmtree(self._path / f"{old:016x}")

    def _trainings(self) -> list[int]:
        """Return the lineages, the one written last first."""
        names = [path.name for path in self._path.iterdir() if path.is_dir() and NAME.fullmatch(path.name)]
        written = {int(name, 16): StateFiles(self._path / name).written for name in names}
        return sorted(written, key=lambda training_id: written[training_id], reverse=True)

    def _at(self, places: Collection[tuple[int, int]]) -> int:
        """Return the lineage of the training whose replica is at one of `places`; 0 if there is none."""
        for training_id in self._trainings():
            try:
                if StateFiles(self._path / f"{training_id:016x}").place() in places:
                    return training_id
            except CORRUPTION_ERRORS as error:
                self._set_aside(training_id, error)
        return 0

    def _set_aside(self, training_id: int, error: Exception) -> None:
        path = self._path / f"{training_id:016x}"
        aside = path.with_suffix(DAMAGED)
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        log(
            WARNING,
            "fedcomp: %s does not hold the whole state of a node (%s); it is set aside as %s, and this node begins anew",
            path,
            error,
            aside.name,
        )

    def _last(self) -> int:
        record = self._records.config_records.get(LAST)
        return int(str(record["lineage"]), 16) if record else 0
