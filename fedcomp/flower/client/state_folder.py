"""A node's state in files, so that a device that restarts continues: one folder per training, named by its id.

Each holds two archives.  ``state`` is replaced after each message.  ``model-...`` is the replica some frames ago; the frames
since then are in ``state``, so that a round writes only what has changed.  What the ClientApp itself keeps in ``Context.state``
is in ``state`` too, whole.
"""

import errno
import os
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from logging import WARNING
from pathlib import Path
from typing import Any, Self

from filelock import FileLock
from flwr.app import ConfigRecord, RecordDict
from google.protobuf.message import DecodeError

from fedcomp.core import Arrays, check_int, from_json, make_folder, octets, read_archive, to_json, write_archive
from fedcomp.errors import CORRUPTION_ERRORS, CorruptError
from fedcomp.flower.client.client_state import ClientState, for_training, from_parts, replica_of
from fedcomp.flower.client.context_store import KEY, ContextStore
from fedcomp.flower.compat import log, record_from_bytes, record_to_bytes
from fedcomp.sync import Replica, apply_frame
from fedcomp.wire import Frame, Kind, parse_frames

FORMAT = "2"
DAMAGE_ERRORS = (DecodeError, *CORRUPTION_ERRORS)
"""What `StateFiles.read` and `StateFiles.place` raise for missing or damaged files."""
MAX_REPLAYED_FRAMES = 32
"""The most frames, and deltas in replays, kept beside a model: each one takes some time to replay when the state is read."""
MIN_MODEL_PER_FRAMES = 4
"""The model is at least this many times as large as the frames beside it."""
TRAININGS = "state-dir-trainings"
"""The key in a node's config that says for how many trainings files are kept: the newest, and earlier ones that may resume."""
MAX_TRAININGS = 4
"""That number if the config has none."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NAME = re.compile(r"[0-9a-f]{16}")
"""The name of a training's folder; everything else in the folder is left alone."""
LAST = "fedcomp.training"
"""The record in ``Context.state`` that names the training of the Flower run."""
DAMAGED = ".damaged"


class StateFiles:
    """The files of one training in `folder`, which need not exist yet; one process at a time may use them.

    `app_records` are the ClientApp's records, as `record_to_bytes` writes them, that `read` found and that `write` writes.
    `run_id` is the Flower run that `write` writes down.
    """

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        self._model = ""
        self._frames: tuple[Frame, ...] = ()
        self.app_records, self.run_id = b"", 0

    @property
    def written_ns(self) -> int:
        """The time of the last write, in nanoseconds; -1 if there was none."""
        return self._state.stat().st_mtime_ns if self._state.exists() else -1

    def make_oldest(self) -> None:
        """Date the last write before all others."""
        os.utime(self._state, ns=(0, 0))

    def place(self) -> tuple[int, int] | None:
        """Return version and fingerprint of the replica, None if there is none; raise one of `DAMAGE_ERRORS`."""
        plain = from_json(read_archive(self._state, ["plain"])["plain"])
        return (int(plain["version"]), int(plain["fingerprint"])) if plain["version"] else None

    def app_records_of(self, run_id: int) -> RecordDict | None:
        """Return the ClientApp's records if the last write was in the Flower run `run_id`, else None.

        Another process may write meanwhile.  Raises one of `DAMAGE_ERRORS`.
        """
        if from_json(read_archive(self._state, ["kept"])["kept"]).get("run") != str(run_id):
            return None
        return record_from_bytes(read_archive(self._state, ["app_records"])["app_records"].tobytes())

    def read(self) -> ClientState:
        """Return the state; raise one of `DAMAGE_ERRORS`."""
        arrays = read_archive(self._state)
        plain, kept = from_json(arrays.pop("plain")), from_json(arrays.pop("kept"))
        if kept["format"] != FORMAT:
            raise CorruptError(f"state format {kept['format']}; this version reads format {FORMAT}")
        records = record_from_bytes(arrays.pop("records").tobytes())
        app_records = arrays.pop("app_records").tobytes() if "app_records" in arrays else b""
        frames = parse_frames(arrays.pop("frames").tobytes())
        replica: Replica | None = None
        if kept["model"]:
            model = read_archive(self._state.with_name(kept["model"]))
            replica = replica_of(from_json(model.pop("plain")), model)
            for frame in frames:
                replica = apply_frame(replica, frame)
        reached = (str(replica.version), str(replica.fingerprint)) if replica is not None else ("", "")
        if reached != (plain["version"], plain["fingerprint"]):
            raise CorruptError(f"the model and its frames lead to version {reached[0]}; {plain['version']} is needed")
        state = from_parts(plain, arrays, records, replica)
        self._model, self._frames = kept["model"], frames
        self.app_records = app_records
        return state

    def write(self, state: ClientState) -> None:
        """Write `state`, which `read` returned, or which is the first one."""
        replica = state.subscriber.replica
        self._frames += state.followed
        if replica is None:
            self._model, self._frames = "", ()
        elif not self._can_replay_to(replica):
            name = _model_name(replica.version, replica.fingerprint)
            _write(self._state.with_name(name), state.model() | {"plain": to_json(state.plain())})
            self._model, self._frames = name, ()
        for path in self._state.parent.glob(".*.partial"):  # left by a writer that was killed
            _remove(path)
        records: dict[str, Any] = dict(state.records())
        parts = state.arrays() | {
            "plain": to_json(state.plain()),
            "kept": to_json({"format": FORMAT, "model": self._model, "run": str(self.run_id)}),
            "records": octets(record_to_bytes(RecordDict(records))),
            "frames": octets(b"".join(frame.to_bytes() for frame in self._frames)),
            "app_records": octets(self.app_records),
        }
        _write(self._state, parts)
        for path in self._state.parent.glob("model-*"):
            if path.name != self._model:
                _remove(path)

    def _can_replay_to(self, replica: Replica) -> bool:
        """Return whether a model is written, and the frames since then lead to `replica` and are few and small enough."""
        size = sum(frame.size for frame in self._frames)
        deltas = sum(frame.version - frame.base_version if frame.kind is Kind.REPLAY else 1 for frame in self._frames)
        too_long = deltas > MAX_REPLAYED_FRAMES or size * MIN_MODEL_PER_FRAMES > replica.vector.nbytes
        end = _model_name(self._frames[-1].version, self._frames[-1].after) if self._frames else self._model
        return bool(self._model) and not too_long and end == _model_name(replica.version, replica.fingerprint)


def _model_name(version: int, fingerprint: int) -> str:
    return f"model-{version}-{fingerprint:016x}"


def trainings_kept(config: Mapping[str, object]) -> int:
    """Return for how many trainings a node with this config keeps files; raise `ValueError` unless it is a number from 1 on."""
    number = config.get(TRAININGS, MAX_TRAININGS)
    check_int(TRAININGS, number, 1, 2**31 - 1)
    return int(str(number))


class StateFolder:
    """The store of a node's state in the folder `path`, which is created if needed; `records` are its ``Context.state``.

    The state of `trainings` trainings is kept, the newest ones.  `run_id` is the Flower run of the messages.  While it is
    entered, other processes wait; entering raises `ValueError` for a folder that cannot be used.
    """

    def __init__(self, path: Path, records: RecordDict, trainings: int = MAX_TRAININGS, run_id: int = 0) -> None:
        self._path = path
        self._records = records
        self._num_trainings = trainings
        self._run_id = run_id
        self._lock = FileLock(path / ".lock", mode=0o600)
        self._files = StateFiles(path)

    def __enter__(self) -> Self:
        try:
            make_folder(self._path)
            self._lock.acquire()
        except (OSError, NotImplementedError) as error:
            raise self._unusable(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def recall(self) -> None:
        """If the node has restarted, put back what its ClientApp kept in this Flower run, for a message that names no training.

        The folder need not be entered: a training in another run would be waited for.
        """
        if LAST in self._records or not self._path.is_dir():
            return
        for training_id in self._trainings():
            with suppress(OSError, *DAMAGE_ERRORS):  # `load` says so
                kept = StateFiles(self._path / f"{training_id:016x}").app_records_of(self._run_id)
                if kept is not None:
                    self._records.update({**kept, **self._records})
                    self._name(training_id)
                    return

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of a training: of `training_id`, or if that is 0, of the Flower run's, or of that at `places`.

        `places` are (version, fingerprint) pairs.  Damaged files are set aside and logged; the state is then empty, and the
        server sends a key frame.  Raises `ValueError` for files that cannot be opened: they may be whole.
        """
        try:
            training_id = training_id or self._last() or self._training_at(places)
            return self._load(training_id) if training_id else ContextStore(self._records).load(0)
        except OSError as error:
            raise self._unusable(error) from None

    def _load(self, training_id: int) -> ClientState:
        path = self._path / f"{training_id:016x}"
        self._files = StateFiles(path)
        try:
            if not path.is_dir() and (path.exists() or path.is_symlink()):
                raise CorruptError("it is no folder")
            if self._files.written_ns >= 0:
                state = self._files.read()
                if LAST not in self._records:  # this Context has no messages behind it: the node has restarted
                    for key, record in record_from_bytes(self._files.app_records).items():
                        self._records.setdefault(key, record)  # what the ClientApp has written since then is newer
                return for_training(state, training_id)
        except DAMAGE_ERRORS as error:
            self._set_aside(path, error)
        return ClientState(training_id=training_id)

    def save(self, state: ClientState) -> None:
        """Write `state`, which `load` returned, and remove all but the newest trainings.

        The state of a training without an id goes to ``Context.state``.  Raises `ValueError` if the
        files cannot be written.
        """
        if not state.training_id:
            ContextStore(self._records).save(state)
            return
        own = [key for key in self._records if key != KEY and not key.startswith(f"{KEY}.")]
        self._files.app_records = record_to_bytes(RecordDict({key: self._records[key] for key in own})) if own else b""
        self._files.run_id = self._run_id
        try:
            self._files.write(state)
            self._remove_old(state.training_id)
        except OSError as error:
            raise self._unusable(error) from None
        self._name(state.training_id)

    def _name(self, training_id: int) -> None:
        self._records[LAST] = ConfigRecord({"id": f"{training_id:016x}"})

    def _remove_old(self, newest: int) -> None:
        for files in (StateFiles(self._path / f"{each:016x}") for each in self._trainings()):
            if files.written_ns > self._files.written_ns:  # under another clock; it would outlive those in use
                files.make_oldest()
        for old in [each for each in self._trainings() if each != newest][self._num_trainings - 1 :]:
            path = self._path / f"{old:016x}"
            text = "fedcomp: %s is removed, the state of a training whose updates are then lost if it goes on: %s is %d"
            log(WARNING, text, path, TRAININGS, self._num_trainings)
            shutil.rmtree(path, ignore_errors=True)

    def _unusable(self, error: Exception) -> ValueError:
        full = isinstance(error, OSError) and error.errno in FULL_DISK
        need = "room for the node's state" if full else "a writable folder with file locks"
        return ValueError(f"state-dir is {str(self._path)!r}; {need} is needed ({error})")

    def _trainings(self) -> list[int]:
        """Return the training ids, the most recently written first."""
        folders = [path for path in self._path.iterdir() if path.is_dir() and not path.is_symlink()]
        names = [path.name for path in folders if NAME.fullmatch(path.name)]
        written_ns = {int(name, 16): StateFiles(self._path / name).written_ns for name in names}
        return sorted(written_ns, key=lambda training_id: written_ns[training_id], reverse=True)

    def _training_at(self, places: Collection[tuple[int, int]]) -> int:
        """Return the id of the newest training whose replica is at one of `places`; 0 if there is none."""
        for training_id in self._trainings():
            path = self._path / f"{training_id:016x}"
            try:
                if StateFiles(path).place() in places:
                    return training_id
            except DAMAGE_ERRORS as error:
                self._set_aside(path, error)
        return 0

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = path.with_suffix(DAMAGED)
        _remove(aside)
        path.rename(aside)
        text = "fedcomp: %s holds no valid node state (%s); it is renamed to %s, and this node starts without memory"
        log(WARNING, text, path, error, aside.name)

    def _last(self) -> int:
        record = self._records.config_records.get(LAST)
        return int(str(record["id"]), 16) if record else 0


def _write(path: Path, arrays: Arrays) -> None:
    if path.is_dir():  # nothing can be renamed onto a folder
        _remove(path)
    write_archive(path, arrays)


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it; nothing that a link leads to, and nothing is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
