"""What a node remembers between messages: its replica, the sender's memory, and the uplink that may not have arrived."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedcomp.errors import FedcompError, LayoutError, VersionError
from fedcomp.memory import State, check
from fedcomp.methods import parse
from fedcomp.replica import Reader, Replica, split_payload, step
from fedcomp.wire import codecs
from fedcomp.wire.frame import SECONDS, Frame, parse_one
from fedcomp.wire.instruction import Instruction, Receipt, receipt
from fedcomp.wire.layout import parse_layout

KEY = "fedcomp"
LOCAL = "fedcomp.local"
ANSWER = "fedcomp.answer."
STYPE = "fedcomp.state/1"


@dataclass(slots=True)
class ClientState:
    """A node's state, a value in ``Context.state``; `save` writes it back.

    `number` is that of the last instruction followed, `taken_number` that of the last one whose answer the server took.
    `pending` is the update frame sent in answer to instruction `pending_number`, made by the compressor `uplink`; `answer` is
    what went beside it, `answer_key` where it stood.  `local` are tensors that stay here.
    """

    replica: Replica | None = None
    memory: State = field(default_factory=dict)
    number: int = 0
    pending: bytes = b""
    pending_number: int = 0
    uplink: str = ""
    taken_number: int = 0
    answer_key: str = ""
    local: dict[str, Array] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)

    def settle(self, taken: Receipt) -> None:
        """Forget the pending uplink if it is the one that the server took; else take its mass back."""
        if taken.number < self.taken_number:
            # The server is back from an older state: its sums lack what it took since, and no estimate agrees with them.
            self._forget_estimate()
        self.taken_number = taken.number
        if not self.pending:
            return
        if self.replica is not None and receipt(self.pending_number, self.pending) != taken:
            frame = parse_one(self.pending)
            if frame.layout == self.replica.layout.digest:
                layout = self.replica.layout
                body, _ = split_payload(frame, frame.payload[SECONDS.size :], layout, b"")
                lost = codecs.codec(frame.codec).decode(body, n=layout.n)
                self.memory |= parse(self.uplink).memory.restore(lost, self.memory)
        self.pending, self.pending_number, self.answer = b"", 0, {}

    def _forget_estimate(self) -> None:
        memory = parse(self.uplink).memory if self.uplink else None
        if memory is not None and memory.incremental:
            for name in memory.init(1):
                self.memory.pop(name, None)
            self.pending, self.pending_number, self.answer = b"", 0, {}

    def follow(self, instruction: Instruction, frames: tuple[Frame, ...], reader: Reader | None = None) -> None:
        """Bring the replica to the version that `instruction` names; `reader` works out what the frames say.

        Raises `FedcompError` where the frames do not lead there; the replica is then at the last version reached.
        """
        for frame in frames:
            before = self.replica
            self.replica = step(self.replica, frame, reader)
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

    def save(self, records: RecordDict) -> None:
        """Write the state into the records of a ``Context.state``."""
        for key in [key for key in records if key in (KEY, LOCAL) or key.startswith(ANSWER)]:
            del records[key]
        arrays = {f"memory.{name}": _to_array(np.asarray(array)) for name, array in self.memory.items()}
        arrays["pending"] = _to_array(np.frombuffer(self.pending, np.uint8))
        plain: dict[str, Any] = {
            "number": str(self.number),
            "pending_number": str(self.pending_number),
            "uplink": self.uplink,
            "answer_key": self.answer_key,
            "taken_number": str(self.taken_number),
            "version": "",
        }
        if self.replica is not None:
            arrays["vector"] = _to_array(self.replica.vector)
            arrays["exact"] = _to_array(np.frombuffer(self.replica.exact, np.uint8))
            arrays["layout"] = _to_array(np.frombuffer(self.replica.layout.text, np.uint8))
            plain |= {"version": str(self.replica.version), "fingerprint": str(self.replica.fingerprint)}
        records[KEY] = ArrayRecord(arrays)
        records[f"{KEY}.plain"] = ConfigRecord({"json": json.dumps(plain)})
        if self.local:
            records[LOCAL] = ArrayRecord(self.local)
        for key, record in self.answer.items():
            records[ANSWER + key] = record


def load(records: RecordDict) -> ClientState:
    """Return the state in the records of a ``Context.state``; an empty one where there is none, or none that is whole."""
    if KEY not in records.array_records or f"{KEY}.plain" not in records.config_records:
        return ClientState()
    try:
        stored = records.array_records[KEY]
        plain = json.loads(str(records.config_records[f"{KEY}.plain"]["json"]))
        replica = None
        if plain["version"]:
            layout = parse_layout(stored["layout"].data)
            vector = _to_vector(stored["vector"])
            if vector.size != layout.n:
                raise LayoutError(f"a stored vector of {vector.size} entries; the stored layout has {layout.n}")
            replica = Replica(layout, int(plain["version"]), vector, stored["exact"].data, int(plain["fingerprint"]))
        state = ClientState(
            replica=replica,
            memory={
                name.removeprefix("memory."): _to_vector(stored[name]) for name in stored if name.startswith("memory.")
            },
            number=int(plain["number"]),
            pending=stored["pending"].data,
            pending_number=int(plain["pending_number"]),
            uplink=plain["uplink"],
            answer_key=plain["answer_key"],
            taken_number=int(plain["taken_number"]),
            local=dict(records.array_records.get(LOCAL, {})),
            answer={
                key.removeprefix(ANSWER): record
                for key, record in records.items()
                if key.startswith(ANSWER) and isinstance(record, MetricRecord | ConfigRecord | ArrayRecord)
            },
        )
        _check(state)
        return state
    except (FedcompError, ValueError, KeyError, TypeError):
        return ClientState()


def _check(state: ClientState) -> None:
    """Refuse stored parts that do not belong together."""
    n = state.replica.layout.n if state.replica is not None else 0
    if state.replica is not None and len(state.replica.exact) != state.replica.layout.exact_size:
        raise LayoutError("the stored exact tensors do not fit the stored layout")
    if state.pending:
        parse_one(state.pending)
        check(state.memory, parse(state.uplink).memory.vectors, n)


def _to_array(array: np.ndarray[Any, Any]) -> Array:
    return Array(str(array.dtype), tuple(array.shape), STYPE, array.tobytes())


def _to_vector(array: Array) -> np.ndarray[Any, Any]:
    """Return a writable copy of a stored array."""
    return np.frombuffer(bytearray(array.data), array.dtype).reshape(array.shape)
