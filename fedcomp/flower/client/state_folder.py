"""A node's state in files, so that a device that restarts continues: one folder per training, named by its id."""

import re
import shutil
from collections.abc import Collection
from logging import WARNING
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock
from flwr.app import ConfigRecord, RecordDict

from fedcomp.flower._compat import log
from fedcomp.flower.client.client_state import ClientState, for_training
from fedcomp.flower.client.context_store import ContextStore
from fedcomp.flower.client.state_files import CORRUPTION_ERRORS, StateFiles

MAX_TRAININGS = 4
"""The number of trainings whose files are kept: the newest, and earlier ones that may resume."""
NAME = re.compile(r"[0-9a-f]{16}")
"""The name of a training's folder; everything else in the folder is left alone."""
LAST = "fedcomp.lineage"
"""The record in ``Context.state`` that names the training of the Flower run."""
DAMAGED = ".damaged"


class StateFolder:
    """The files in `path`; while it is entered, other processes wait."""

    def __init__(self, path: Path, records: RecordDict) -> None:
        """Use the folder `path`, which is created if needed; `records` are the node's ``Context.state``."""
        self._path = path
        self._records = records
        self._lock = FileLock(path / ".lock")
        self._files = StateFiles(path)

    def __enter__(self) -> Self:
        """Wait for the folder; raise `ValueError` if it cannot be used."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
        except (OSError, NotImplementedError) as error:
            raise ValueError(
                f"state-dir is {str(self._path)!r}; a writable folder with file locks is needed ({error})"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let other processes use the folder."""
        self._lock.release()

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of a training: of `training_id`, or if that is 0, of the Flower run's, or of that at `places`.

        `places` are (version, fingerprint) pairs.  Damaged files are set aside and logged; the state is then empty, and the
        server sends a key frame.
        """
        training_id = training_id or self._last() or self._training_at(places)
        if not training_id:
            return ContextStore(self._records).load(0)
        self._files = StateFiles(self._path / f"{training_id:016x}")
        if self._files.written_ns:
            try:
                return for_training(self._files.read(), training_id)
            except CORRUPTION_ERRORS as error:
                self._set_aside(training_id, error)
        return ClientState(training_id=training_id)

    def save(self, state: ClientState) -> None:
        """Write `state`, which `load` returned, and remove all but the newest trainings.

        The state of a training without an id, from an older server, goes to ``Context.state``.
        """
        if not state.training_id:
            ContextStore(self._records).save(state)
            return
        self._files.write(state)
        self._records[LAST] = ConfigRecord({"lineage": f"{state.training_id:016x}"})
        # The clock may have jumped, so this training need not be the first of all.
        others = [training_id for training_id in self._trainings() if training_id != state.training_id]
        for old in others[MAX_TRAININGS - 1 :]:
            shutil.rmtree(self._path / f"{old:016x}")

    def _trainings(self) -> list[int]:
        """Return the training ids, the most recently written first."""
        names = [path.name for path in self._path.iterdir() if path.is_dir() and NAME.fullmatch(path.name)]
        written_ns = {int(name, 16): StateFiles(self._path / name).written_ns for name in names}
        return sorted(written_ns, key=lambda training_id: written_ns[training_id], reverse=True)

    def _training_at(self, places: Collection[tuple[int, int]]) -> int:
        """Return the id of the newest training whose replica is at one of `places`; 0 if there is none."""
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
            "fedcomp: %s holds no valid node state (%s); it is renamed to %s, and this node starts without memory",
            path,
            error,
            aside.name,
        )

    def _last(self) -> int:
        record = self._records.config_records.get(LAST)
        return int(str(record["lineage"]), 16) if record else 0
