"""What a node remembers between messages: its replica, the sender's memory, and the uplink that may not have arrived."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedcomp.compressor import MAX_ROUND
from fedcomp.core import check_int, format_call, parse_call
from fedcomp.errors import FedcompError, LayoutError, VersionError
from fedcomp.memory import State, check_state
from fedcomp.methods import parse
from fedcomp.sync import FrameDecoder, Replica, apply_frame, split_payload
from fedcomp.wire import SECONDS, Ack, Frame, ServerMessage, ack_of, codec_by_id, parse_layout, parse_single_frame

KEY = "fedcomp"
LOCAL = "fedcomp.local"
ANSWER = "fedcomp.answer."
STYPE = "fedcomp.state/1"
DAMAGE = (FedcompError, ValueError, KeyError, TypeError)
"""What parts that are not whole raise."""

Arrays = dict[str, np.ndarray[Any, Any]]
Record = ArrayRecord | MetricRecord | ConfigRecord


@dataclass(slots=True)
class ClientState:
    """A node's state, a value in ``Context.state``; `save` writes it back.

    `number` is that of the last instruction followed, `taken_number` that of the last one whose answer the server took.
    `pending` is the update frame sent in answer to instruction `pending_number`, made by the compressor `uplink`; `answer` is
    what went beside it, `answer_key` where it stood.  `local` are tensors that stay here.  `lineage` names the training
    that all of it belongs to, 0: not known; `node` is the id under which the node took part.  `followed` are the frames that
    the replica has followed with the last instruction; they are no part of it.
    """

    replica: Replica | None = None
    memory: State = field(default_factory=dict)
    number: int = 0
    pending: bytes = b""
    pending_number: int = 0
    uplink: str = ""
    acked_number: int = 0
    training_id: int = 0
    node: int = 0
    answer_key: str = ""
    local: dict[str, Array] = field(default_factory=dict)
    answer: dict[str, Record] = field(default_factory=dict)
    followed: list[Frame] = field(default_factory=list)

    def settle(self, acked: Ack, node: int) -> None:
        """Forget the pending uplink if it is the one that the server took; else take its mass back.

        Of a node that has come back under another id the server cannot say what it took: most likely all.
        """
        if node != self.node:
            self.node, self.pending, self.pending_number, self.answer = node, b"", 0, {}
            self.acked_number = acked.number
        if acked.number < self.acked_number:
            # The server is back from an older state: its sums lack what it took since, and no estimate agrees with them.
            self._forget_estimate()
        self.acked_number = acked.number
        if not self.pending:
            return
        if self.replica is not None and ack_of(self.pending_number, self.pending) != acked:
            frame = parse_single_frame(self.pending)
            if frame.layout == self.replica.layout.digest:
                layout = self.replica.layout
                body, _ = split_payload(frame, frame.payload[SECONDS.size :], layout, b"")
                lost = codec_by_id(frame.codec).decode(body, n=layout.n)
                self.memory |= parse(self.uplink).memory.rollback(lost, self.memory)
        self.pending, self.pending_number, self.answer = b"", 0, {}

    def _forget_estimate(self) -> None:
        memory = parse(self.uplink).memory if self.uplink else None
        if memory is not None and memory.incremental:
            for name in memory.init(1):
                self.memory.pop(name, None)
            self.pending, self.pending_number, self.answer = b"", 0, {}

    def follow(self, instruction: ServerMessage, frames: tuple[Frame, ...], reader: FrameDecoder | None = None) -> None:
        """Bring the replica to the version that `instruction` names; `reader` works out what the frames say.

        Raises `FedcompError` where the frames do not lead there; the replica is then at the last version reached.
        """
        self.followed = []
        for frame in frames:
            before = self.replica
            self.replica = apply_frame(self.replica, frame, reader)
            self.followed.append(frame)
            if before is not None and before.layout.digest != self.replica.layout.digest:
                self.memory, self.local = {}, {}
        replica = self.replica
        if replica is None:
            raise VersionError("no model is held and no key frame came")
        if (replica.version, replica.fingerprint) != (instruction.version, instruction.fingerprint):
            raise VersionError(
                f"version {replica.version} ({replica.fingerprint:016x}) is held after all frames; the instruction is for "
                f"version {instruction.version} ({instruction.fingerprint:016x})"
            )

    def plain(self) -> dict[str, str]:
        """Return the numbers and names, as texts: JSON has no integers of 64 bits."""
        replica = self.replica
        return {
            "lineage": str(self.training_id),
            "node": str(self.node),
            "number": str(self.number),
            "pending_number": str(self.pending_number),
            "uplink": self.uplink,
            "answer_key": self.answer_key,
            "taken_number": str(self.acked_number),
            "version": str(replica.version) if replica is not None else "",
            "fingerprint": str(replica.fingerprint) if replica is not None else "",
        }

    def arrays(self) -> Arrays:
        """Return what is big, by name, the model apart; bytes as uint8.  Nothing is copied."""
        arrays = {f"memory.{name}": np.asarray(array) for name, array in self.memory.items()}
        return arrays | {"pending": np.frombuffer(self.pending, np.uint8)}

    def model(self) -> Arrays:
        """Return the arrays of the replica; nothing is copied."""
        if self.replica is None:
            return {}
        exact, layout = (np.frombuffer(data, np.uint8) for data in (self.replica.exact, self.replica.layout.text))
        return {"vector": self.replica.vector, "exact": exact, "layout": layout}

    def records(self) -> dict[str, Record]:
        """Return what came from the ClientApp as records, by key."""
        answer = {ANSWER + key: record for key, record in self.answer.items()}
        return {LOCAL: ArrayRecord(self.local)} | answer if self.local else answer

    def save(self, records: RecordDict) -> None:
        """Write the state into the records of a ``Context.state``."""
        for key in [key for key in records if key in (KEY, LOCAL) or key.startswith(ANSWER)]:
            del records[key]
        records[KEY] = ArrayRecord(
            {
                name: Array(str(array.dtype), tuple(array.shape), STYPE, array.tobytes())
                for name, array in (self.arrays() | self.model()).items()
            }
        )
        records[f"{KEY}.plain"] = ConfigRecord({"json": json.dumps(self.plain())})
        for key, record in self.records().items():
            records[key] = record


def load(records: RecordDict) -> ClientState:
    """Return the state in the records of a ``Context.state``; an empty one where there is none, or none that is whole."""
    if KEY not in records.array_records or f"{KEY}.plain" not in records.config_records:
        return ClientState()
    try:
        stored = {
            name: np.frombuffer(bytearray(array.data), array.dtype).reshape(array.shape)  # writable
            for name, array in records.array_records[KEY].items()
        }
        plain = json.loads(str(records.config_records[f"{KEY}.plain"]["json"]))
        return from_parts(plain, stored, records, replica_of(plain, stored))
    except DAMAGE:
        return ClientState()


def replica_of(plain: Mapping[str, str], model: Arrays) -> Replica | None:
    """Return the replica of which `model` holds the arrays, which are handed over; None where `plain` names no version."""
    if not plain["version"]:
        return None
    layout, exact = parse_layout(model["layout"].tobytes()), model["exact"].tobytes()
    if model["vector"].shape != (layout.n,) or model["vector"].dtype != np.float32:
        raise LayoutError(f"a stored vector of {model['vector'].size} entries; the stored layout has {layout.n}")
    if len(exact) != layout.exact_size:
        raise LayoutError("the stored exact tensors do not fit the stored layout")
    return Replica(layout, int(plain["version"]), model["vector"], exact, int(plain["fingerprint"]))


def from_parts(
    plain: Mapping[str, str], arrays: Arrays, records: Mapping[str, Record], replica: Replica | None
) -> ClientState:
    """Return the state of which these are the parts; other records are left alone.

    The arrays are handed over, and writable.  Raises one of `DAMAGE` for parts that do not belong together.
    """
    local = records.get(LOCAL)
    state = ClientState(
        replica=replica,
        memory={name.removeprefix("memory."): array for name, array in arrays.items() if name.startswith("memory.")},
        number=int(plain["number"]),
        pending=arrays["pending"].tobytes(),
        pending_number=int(plain["pending_number"]),
        uplink=split_epoch(plain["uplink"])[0] if plain["uplink"] else "",
        acked_number=int(plain["taken_number"]),
        training_id=int(plain.get("lineage", 0)),
        node=int(plain.get("node", 0)),
        answer_key=plain["answer_key"],
        local=dict(local) if isinstance(local, ArrayRecord) else {},
        answer={
            key.removeprefix(ANSWER): record
            for key, record in records.items()
            if key.startswith(ANSWER) and isinstance(record, Record)
        },
    )
    if state.pending:
        parse_single_frame(state.pending)
        check_state(state.memory, parse(state.uplink).memory.vectors, replica.layout.n if replica is not None else 0)
    return state


def of_training(state: ClientState, training_id: int) -> ClientState:
    """Return `state` if it belongs to `lineage`, or if that is not said (0); else an empty one."""
    return state if training_id in (0, state.training_id) else ClientState(training_id=training_id)


def split_epoch(uplink: str) -> tuple[str, int]:
    """Return the uplink without the server's epoch, and that epoch; 0 where the text names none."""
    name, _, settings = parse_call(uplink)
    if "epoch" not in settings:
        return uplink, 0
    epoch = settings.pop("epoch")
    check_int("epoch", epoch, 0, MAX_ROUND)
    return format_call(name, settings), int(str(epoch))
