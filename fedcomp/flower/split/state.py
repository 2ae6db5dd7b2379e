"""A node's state of split training between messages: in the records of its ``Context.state``, or in files."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from logging import WARNING
from pathlib import Path
from typing import Self

from filelock import FileLock
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict

from fedcomp.core import Arrays, below, from_json, make_folder, octets, read_archive, to_json, write_archive
from fedcomp.errors import CORRUPTION_ERRORS, CorruptError
from fedcomp.flower.client.kept_state import SPLIT_KEY
from fedcomp.flower.client.store import state_folder
from fedcomp.flower.client.stored_array import STYPE, restored
from fedcomp.flower.compat import log
from fedcomp.split import ActivationMemory, SplitState
from fedcomp.wire import parse_single_frame

KEY, PLAIN = SPLIT_KEY, f"{SPLIT_KEY}.plain"
FOLDER = "split"
"""The folder in a node's state-dir; it holds the state of the newest split training."""
DAMAGE = (*CORRUPTION_ERRORS, FileNotFoundError)


class ContextState:
    """The state in `records`, a ``Context.state``; other records in it are left alone."""

    def __init__(self, records: RecordDict) -> None:
        self._records = records

    def load(self, training_id: int, row_size: int) -> SplitState:
        """Return the state of a training; an empty one if there is none, or if it is damaged."""
        records = self._records
        try:
            arrays: Arrays = {name: restored(array) for name, array in records.array_records[KEY].items()}
            plain = json.loads(str(records.config_records[PLAIN]["json"]))
            memory = ActivationMemory(row_size)
            memory.put(arrays["ids"], arrays["rows"].reshape(len(arrays["ids"]), row_size))
            return _from_parts(training_id, plain, arrays, memory)
        except CORRUPTION_ERRORS:
            return SplitState(ActivationMemory(row_size), training_id)

    def save(self, state: SplitState) -> None:
        """Write `state` into the records."""
        arrays = _arrays(state) | {"rows": state.memory.rows(state.memory.ids)}
        record = {name: Array(str(a.dtype), a.shape, STYPE, a.tobytes()) for name, a in arrays.items()}
        self._records[KEY] = ArrayRecord(record)
        self._records[PLAIN] = ConfigRecord({"json": json.dumps(_plain(state))})


class FolderState:
    """The state in files of the folder `path`, which is created if needed: ``state`` is replaced after each message.

    ``rows`` holds the activations, and changes in place.  A node that is killed meanwhile finds rows that no longer fit its
    state: then it, or the server, notices another digest, and those samples are sent in full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path / ".lock")
        self._memory: ActivationMemory | None = None

    def __enter__(self) -> Self:
        try:
            make_folder(self._path)
            self._lock.acquire()
        except (OSError, NotImplementedError) as error:
            raise ValueError(f"{self._path} cannot hold a node's state: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._memory is not None:
            self._memory.close()
        self._lock.release()

    def load(self, training_id: int, row_size: int) -> SplitState:
        """Return the state of a training; an empty one if there is none, or if it is damaged."""
        rows, state = self._path / "rows", self._path / "state"
        if state.exists():
            try:
                arrays = read_archive(state)
                ids = arrays["ids"]
                self._memory = ActivationMemory(row_size, 0, rows, ids)
                return _from_parts(training_id, from_json(arrays["plain"]), arrays, self._memory)
            except DAMAGE as error:
                log(WARNING, "fedcomp: %s holds no state of this training (%s); it starts without memory", state, error)
        if self._memory is not None:
            self._memory.close()
        self._memory = ActivationMemory(row_size, 0, rows)
        return SplitState(self._memory, training_id)

    def save(self, state: SplitState) -> None:
        """Write `state`, which `load` returned."""
        write_archive(self._path / "state", _arrays(state) | {"plain": to_json(_plain(state))})


def open_store(context: Context) -> AbstractContextManager[ContextState | FolderState]:
    """Return the store of a node's state; no other process uses it while it is entered.

    Raises `ValueError` for a state-dir that cannot be used.
    """
    folder = state_folder(context)
    return nullcontext(ContextState(context.state)) if folder is None else FolderState(folder / FOLDER)


def _plain(state: SplitState) -> dict[str, str]:
    """Return the numbers as texts, because JSON has no 64-bit integers."""
    return {
        "training_id": str(state.training_id),
        "number": str(state.number),
        "round": str(state.round_number),
        "visits": str(state.visits),
    }


def _arrays(state: SplitState) -> Arrays:
    """Return all arrays by name but the rows of the memory."""
    arrays = {f"weights.{name}": array for name, array in state.weights.items()}
    arrays |= {f"momentum.{name}": array for name, array in state.momentum.items()}
    return arrays | {"pending": octets(state.pending), "pending_ids": state.pending_ids, "ids": state.memory.ids}


def _from_parts(training_id: int, plain: Mapping[str, str], arrays: Arrays, memory: ActivationMemory) -> SplitState:
    """Return the state with these parts; raise one of `CORRUPTION_ERRORS` for those of another training, or that do not fit."""
    if int(plain["training_id"]) != training_id:
        raise CorruptError(f"training {int(plain['training_id']):016x}; {training_id:016x} is needed")
    pending = arrays["pending"].tobytes()
    if pending:
        parse_single_frame(pending)
    return SplitState(
        memory,
        training_id,
        int(plain["number"]),
        int(plain["round"]),
        int(plain["visits"]),
        pending,
        arrays["pending_ids"],
        below(arrays, "weights."),
        below(arrays, "momentum."),
    )
