"""What a node remembers of one training, in two files of a folder.

``state`` is replaced whole after each message.  ``model-...`` is the replica as it was some frames ago; the frames since stand
in the state, so that a round writes what has changed, and no more.  Both are numpy's archives, whose parts carry checksums;
no pickle.
"""

import json
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from flwr.app import RecordDict
from google.protobuf.message import DecodeError

from fedcomp.core import write_atomically
from fedcomp.errors import CorruptError
from fedcomp.flower._compat import record_from_bytes, record_to_bytes
from fedcomp.flower.client.client_state import DAMAGE, Arrays, ClientState, from_parts, replica_of
from fedcomp.sync import Replica, apply_frame
from fedcomp.wire import Frame, parse_frames

FORMAT = "1"
CORRUPTION_ERRORS = (*DAMAGE, FileNotFoundError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, DecodeError)
"""What files that are not whole raise; `zipfile` says RuntimeError for a flipped bit that means a password."""
MAX_REPLAYED_FRAMES = 32
"""Frames behind a model: each takes a little time to follow again when the state is read."""
MOST_SHARE = 4
"""And their bytes are no more than the model's by this."""


class StateFiles:
    """The files in `folder`; one process at a time uses them."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which need not be there yet."""
        self._state = folder / "state"
        self._model = ""
        self._frames: tuple[Frame, ...] = ()

    @property
    def written(self) -> int:
        """When the state was last written, in nanoseconds; 0: never."""
        return self._state.stat().st_mtime_ns if self._state.exists() else 0

    def place(self) -> tuple[int, int] | None:
        """Return version and fingerprint of the replica, None where there is none; raise one of `TORN`."""
        with self._state.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            plain = _json(archive["plain"])
        return (int(plain["version"]), int(plain["fingerprint"])) if plain["version"] else None

    def read(self) -> ClientState:
        """Return the state; raise one of `TORN` for one that is not whole."""
        arrays = _read(self._state)
        plain, kept = _json(arrays.pop("plain")), _json(arrays.pop("kept"))
        records, frames = (arrays.pop(name).tobytes() for name in ("records", "frames"))
        self._model, self._frames = kept["model"], parse_frames(frames)
        replica: Replica | None = None
        if self._model:
            model = _read(self._state.with_name(self._model))
            replica = replica_of(_json(model.pop("plain")), model)
            for frame in self._frames:
                replica = apply_frame(replica, frame)
        there = (str(replica.version), str(replica.fingerprint)) if replica is not None else ("", "")
        if there != (plain["version"], plain["fingerprint"]):
            raise CorruptError(f"the model and its frames lead to version {there[0]}, not to {plain['version']}")
        return from_parts(plain, arrays, record_from_bytes(records), replica)

    def write(self, state: ClientState) -> None:
        """Write `state`, which `read` gave, or which is the first."""
        self._frames += tuple(state.followed)
        if state.replica is None:
            self._model, self._frames = "", ()
        elif not self._leads_to(state.replica):
            self._model, self._frames = _name(state.replica.version, state.replica.fingerprint), ()
            write_atomically(self._state.with_name(self._model), partial(_write_model, state))
        for path in self._state.parent.glob(".*.partial"):  # what a writer left that was killed
            path.unlink()
        kept = {"format": FORMAT, "model": self._model}
        write_atomically(self._state, partial(_write_state, state, kept, self._frames))
        for path in self._state.parent.glob("model-*"):
            if path.name != self._model:
                path.unlink()

    def _leads_to(self, replica: Replica) -> bool:
        """Say whether the model and the frames behind it, not too many of them, are a short way to `replica`."""
        size = sum(frame.size for frame in self._frames)
        if not self._model or len(self._frames) > MAX_REPLAYED_FRAMES or size * MOST_SHARE > replica.vector.nbytes:
            return False
        end = _name(self._frames[-1].version, self._frames[-1].after) if self._frames else self._model
        return end == _name(replica.version, replica.fingerprint)


def _name(version: int, fingerprint: int) -> str:
    return f"model-{version}-{fingerprint:016x}"


def _write_model(state: ClientState, file: BinaryIO) -> None:
    _write(file, state.model() | {"plain": _octets(json.dumps(state.plain()).encode())})


def _write_state(state: ClientState, kept: dict[str, str], frames: tuple[Frame, ...], file: BinaryIO) -> None:
    records = record_to_bytes(RecordDict(dict(state.records())))
    parts = {
        "plain": json.dumps(state.plain()).encode(),
        "kept": json.dumps(kept).encode(),
        "records": records,
        "frames": b"".join(frame.to_bytes() for frame in frames),
    }
    _write(file, state.arrays() | {name: _octets(part) for name, part in parts.items()})


def _write(file: BinaryIO, arrays: Arrays) -> None:
    np.savez(file, **arrays)  # type: ignore[arg-type]


def _read(path: Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if "kept" in arrays and (found := _json(arrays["kept"])["format"]) != FORMAT:
        raise CorruptError(f"state format {found}; this version reads format {FORMAT}")
    return arrays


def _octets(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


def _json(octets: np.ndarray) -> dict[str, str]:
    return dict(json.loads(octets.tobytes()))
