"""A node's memory in files, so that a device that restarts goes on where it was.

One file a training, named by its lineage: numpy's archive, whose parts carry checksums, no pickle.  It is replaced whole, so
that the replica, the residual and the pending uplink in it always belong together.
"""

import json
import os
import zipfile
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from logging import WARNING
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.supercore import log
from google.protobuf.message import DecodeError

from fedcomp.errors import CorruptError
from fedcomp.flower.atomic_file import write_atomically
from fedcomp.flower.client_state import DAMAGE, ClientState, from_parts, of_lineage

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".state"
KEPT = 2
"""Trainings whose files stay: the last one, and the one before, which may go on."""
LAST = "fedcomp.lineage"
"""The record in ``Context.state`` that says which training the Flower run belongs to."""
FORMAT = 1
TORN = (*DAMAGE, EOFError, zipfile.BadZipFile, DecodeError)
"""What a file that is not whole raises."""


class StateFolder:
    """The files in `path`; enter it to work with them: a second process waits until the first has left."""

    def __init__(self, path: Path, records: RecordDict) -> None:
        """Use the folder `path`, made where it is not there; `records` are the node's ``Context.state``."""
        self._path = path
        self._records = records
        self._open = ExitStack()

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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let others work with the folder."""
        self._open.close()

    def recall(self, lineage: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of `lineage`; 0: of the Flower run's, else the one whose replica is at one of `places`.

        Places are versions and fingerprints.  A file that is not whole is set aside, and reported: the state is then empty, and
        the server sends a key frame.
        """
        lineage = lineage or self._last() or self._at(places)
        path = self._file(lineage)
        if not lineage or not path.exists():
            return ClientState(lineage=lineage)
        try:
            return of_lineage(_read(path), lineage)
        except TORN as error:
            self._set_aside(path, error)
            return ClientState(lineage=lineage)

    def remember(self, state: ClientState) -> None:
        """Write `state`, and remove the files of all but the last trainings; one of no training is not kept."""
        if not state.lineage:
            return
        write_atomically(self._file(state.lineage), partial(_write, state))
        self._records[LAST] = ConfigRecord({"lineage": f"{state.lineage:016x}"})
        for old in self._files()[KEPT:]:
            old.unlink()

    def _file(self, lineage: int) -> Path:
        return self._path / f"{lineage:016x}{SUFFIX}"

    def _files(self) -> list[Path]:
        """Return the files, the one written last first."""
        found = [path for path in self._path.glob(f"*{SUFFIX}") if not path.name.startswith(".")]
        return sorted(found, key=lambda file: file.stat().st_mtime_ns, reverse=True)

    def _at(self, places: Collection[tuple[int, int]]) -> int:
        """Return the lineage of the file whose replica is at one of `places`; 0 if there is none."""
        for path in self._files():
            try:
                state = _plain(path)
                if state["version"] and (int(state["version"]), int(state["fingerprint"])) in places:
                    return int(state["lineage"])
            except TORN as error:
                self._set_aside(path, error)
        return 0

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = path.with_suffix(".damaged")
        os.replace(path, aside)  # noqa: PTH105
        log(
            WARNING,
            "fedcomp: %s is not the whole state of a node (%s); it is set aside as %s, and this node begins anew",
            path,
            error,
            aside.name,
        )

    def _last(self) -> int:
        record = self._records.config_records.get(LAST)
        return int(str(record["lineage"]), 16) if record else 0


def _write(state: ClientState, file: BinaryIO) -> None:
    records = RecordDict(dict(state.records()))
    texts = {
        "format": str(FORMAT).encode(),
        "plain": json.dumps(state.plain()).encode(),
        "records": recorddict_to_proto(records).SerializeToString(),
    }
    np.savez(file, **{name: np.frombuffer(text, np.uint8) for name, text in texts.items()}, **state.arrays())  # type: ignore[arg-type]


def _read(path: Path) -> ClientState:
    """Return the state in a file; raise one of `TORN` for one that is not whole."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    found, plain, records = (arrays.pop(name).tobytes() for name in ("format", "plain", "records"))
    if found != str(FORMAT).encode():
        raise CorruptError(f"state format {found!r}; this version reads format {FORMAT}")
    return from_parts(json.loads(plain), arrays, recorddict_from_proto(RecordDictProto.FromString(records)))


def _plain(path: Path) -> dict[str, str]:
    """Return the numbers and names in a file; the arrays are not read."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return dict(json.loads(archive["plain"].tobytes()))
