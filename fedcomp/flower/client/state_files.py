"""A node's state of one training, in two files of a folder.

``state`` is replaced after each message.  ``model-...`` is the replica some frames ago; the frames since then are in ``state``,
so that a round writes only what has changed.  Both are archives (`fedcomp.core.write_archive`).
"""

from pathlib import Path
from typing import Any

from flwr.app import RecordDict
from google.protobuf.message import DecodeError

from fedcomp.core import ARCHIVE_ERRORS, Arrays, from_json, octets, read_archive, to_json, write_archive
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.flower._compat import record_from_bytes, record_to_bytes
from fedcomp.flower.client.client_state import ClientState, from_parts, replica_of
from fedcomp.sync import Replica, apply_frame
from fedcomp.wire import Frame, parse_frames

FORMAT = "1"
CORRUPTION_ERRORS = (FedcompError, DecodeError, *ARCHIVE_ERRORS)
"""What `StateFiles.read` and `StateFiles.place` raise for missing or damaged files."""
MAX_REPLAYED_FRAMES = 32
"""The most frames kept beside a model: each one takes some time to replay when the state is read."""
MIN_MODEL_PER_FRAMES = 4
"""The model is at least this many times as large as the frames beside it."""


class StateFiles:
    """The files in `folder`; one process at a time may use them."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which need not exist yet."""
        self._state = folder / "state"
        self._model = ""
        self._frames: tuple[Frame, ...] = ()

    @property
    def written_ns(self) -> int:
        """The time of the last write, in nanoseconds; 0 if there was none."""
        return self._state.stat().st_mtime_ns if self._state.exists() else 0

    def place(self) -> tuple[int, int] | None:
        """Return version and fingerprint of the replica, None if there is none; raise one of `CORRUPTION_ERRORS`."""
        plain = from_json(read_archive(self._state, ["plain"])["plain"])
        return (int(plain["version"]), int(plain["fingerprint"])) if plain["version"] else None

    def read(self) -> ClientState:
        """Return the state; raise one of `CORRUPTION_ERRORS`."""
        arrays = read_archive(self._state)
        plain, kept = from_json(arrays.pop("plain")), from_json(arrays.pop("kept"))
        if kept["format"] != FORMAT:
            raise CorruptError(f"state format {kept['format']}; this version reads format {FORMAT}")
        records, frames = (arrays.pop(name).tobytes() for name in ("records", "frames"))
        self._model, self._frames = kept["model"], parse_frames(frames)
        replica: Replica | None = None
        if self._model:
            model = read_archive(self._state.with_name(self._model))
            replica = replica_of(from_json(model.pop("plain")), model)
            for frame in self._frames:
                replica = apply_frame(replica, frame)
        reached = (str(replica.version), str(replica.fingerprint)) if replica is not None else ("", "")
        if reached != (plain["version"], plain["fingerprint"]):
            raise CorruptError(f"the model and its frames lead to version {reached[0]}; {plain['version']} is needed")
        return from_parts(plain, arrays, record_from_bytes(records), replica)

    def write(self, state: ClientState) -> None:
        """Write `state`, which `read` returned, or which is the first one."""
        self._frames += state.followed
        replica = state.subscriber.replica
        if replica is None:
            self._model, self._frames = "", ()
        elif not self._is_short_way_to(replica):
            self._model, self._frames = _model_name(replica.version, replica.fingerprint), ()
            write_archive(self._state.with_name(self._model), state.model() | {"plain": to_json(state.plain())})
        for path in self._state.parent.glob(".*.partial"):  # left by a writer that was killed
            path.unlink()
        write_archive(self._state, self._parts(state))
        for path in self._state.parent.glob("model-*"):
            if path.name != self._model:
                path.unlink()

    def _parts(self, state: ClientState) -> Arrays:
        records: dict[str, Any] = dict(state.records())
        return state.arrays() | {
            "plain": to_json(state.plain()),
            "kept": to_json({"format": FORMAT, "model": self._model}),
            "records": octets(record_to_bytes(RecordDict(records))),
            "frames": octets(b"".join(frame.to_bytes() for frame in self._frames)),
        }

    def _is_short_way_to(self, replica: Replica) -> bool:
        """Return whether the model and the frames beside it lead to `replica`, and are few and small enough."""
        size = sum(frame.size for frame in self._frames)
        too_long = len(self._frames) > MAX_REPLAYED_FRAMES or size * MIN_MODEL_PER_FRAMES > replica.vector.nbytes
        if not self._model or too_long:
            return False
        end = _model_name(self._frames[-1].version, self._frames[-1].after) if self._frames else self._model
        return end == _model_name(replica.version, replica.fingerprint)


def _model_name(version: int, fingerprint: int) -> str:
    return f"model-{version}-{fingerprint:016x}"
