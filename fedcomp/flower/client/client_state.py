"""A node's state between messages: a value that the stores save and load."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from fedcomp.core import Arrays, below, octets
from fedcomp.memory import check_state
from fedcomp.methods import parse
from fedcomp.sync import (
    FrameDecoder,
    MakeStart,
    RecordSender,
    Replica,
    Subscriber,
    from_stored,
    stored_arrays,
    stored_place,
)
from fedcomp.wire import Ack, Frame, Kind, ServerMessage, parse_layout, parse_single_frame, to_numpy

LOCAL = "fedcomp.local"
ANSWER = "fedcomp.answer."

Record = ArrayRecord | MetricRecord | ConfigRecord


@dataclass(slots=True)
class ClientState:
    """What a node remembers of one training.

    `training_id` names the training, 0 if it is unknown.  `local` are the tensors that never travel, as last trained here.
    While the subscriber has a pending update, `answer` are the other records of that reply and `answer_key` is the key of the
    update's own record.  `senders` are those of the further records that the server wants compressed, by key; their pending
    frames belong to the same reply.  `followed` are the steps that the replica followed with the last message, none if it began
    anew with a key or start frame; they are not saved.
    """

    subscriber: Subscriber = field(default_factory=Subscriber)
    training_id: int = 0
    answer_key: str = ""
    local: dict[str, Array] = field(default_factory=dict[str, Array])
    answer: dict[str, Record] = field(default_factory=dict[str, Record])
    senders: dict[str, RecordSender] = field(default_factory=dict[str, RecordSender])
    followed: tuple[Frame, ...] = ()

    def settle(self, acked: Ack, node: int, returned: float = 0.0) -> None:
        """Settle the pending update and the pending records, which were accepted together or not at all.

        The share `returned` of the update goes back to its memory; records count in full.
        """
        accepted = self.subscriber.settle(acked, node, returned)
        for sender in self.senders.values():
            sender.settle(accepted)

    def follow(
        self,
        message: ServerMessage,
        frames: tuple[Frame, ...],
        decoder: FrameDecoder | None,
        make_start: MakeStart | None = None,
    ) -> None:
        """Bring the replica to the version of `message`, as `Subscriber.follow` does."""
        before = self.subscriber.replica
        try:
            self.subscriber.follow(message, frames, decoder, make_start)
        finally:
            after = self.subscriber.replica
            if before is not None and after is not None and before.layout.digest != after.layout.digest:
                self.local, self.senders = {}, {}
        self.followed = () if any(frame.kind in (Kind.KEY, Kind.START) for frame in frames) else frames

    def plain(self) -> dict[str, str]:
        """Return the numbers and names as texts, because JSON has no 64-bit integers."""
        subscriber, replica = self.subscriber, self.subscriber.replica
        senders = [(key, each.uplink, str(each.pending_number)) for key, each in self.senders.items()]
        return {
            "training_id": str(self.training_id),
            "node": str(subscriber.node),
            "number": str(subscriber.number),
            "pending_number": str(subscriber.pending_number),
            "uplink": subscriber.uplink,
            "answer_key": self.answer_key,
            "acked_number": str(subscriber.acked_number),
            **({"version": "", "fingerprint": ""} if replica is None else stored_place(replica)),
            "past_servers": " ".join(map(str, subscriber.past_servers)),
            **({"records": json.dumps(senders)} if senders else {}),
        }

    def arrays(self) -> Arrays:
        """Return the memories, the pending update and the pending records by name, without copying memories on the host."""
        arrays = {f"memory.{name}": to_numpy(array) for name, array in self.subscriber.memory.items()}
        for index, sender in enumerate(self.senders.values()):
            prefix = _prefix(index)
            arrays |= {f"{prefix}memory.{name}": to_numpy(array) for name, array in sender.memory.items()}
            arrays[prefix + "pending"] = octets(sender.pending)
            arrays[prefix + "layout"] = octets(sender.layout.text if sender.layout is not None else b"")
        return arrays | {"pending": octets(self.subscriber.pending)}

    def model(self) -> Arrays:
        """Return the arrays of the replica by name, without copying them; none if there is no replica."""
        replica = self.subscriber.replica
        return {} if replica is None else stored_arrays(replica)

    def records(self) -> dict[str, Record]:
        """Return the records that came from the ClientApp, by the keys under which they are saved."""
        answer = {ANSWER + key: record for key, record in self.answer.items()} if self.subscriber.pending else {}
        return {LOCAL: ArrayRecord(self.local)} | answer if self.local else answer


def replica_of(plain: Mapping[str, str], model: Arrays) -> Replica | None:
    """Return the replica with the arrays `model`, which are handed over; None if `plain` names no version."""
    return from_stored(plain, model) if plain["version"] else None


def from_parts(
    plain: Mapping[str, str], arrays: Arrays, records: Mapping[str, Record], replica: Replica | None
) -> ClientState:
    """Return the state with these parts; other entries of `records` are ignored.

    `arrays` are handed over, and writable.  Raises one of `errors.CORRUPTION_ERRORS` for parts that do not belong together.
    """
    local = records.get(LOCAL)
    subscriber = Subscriber(
        replica=replica,
        memory=below(arrays, "memory."),
        number=int(plain["number"]),
        pending=arrays["pending"].tobytes(),
        pending_number=int(plain["pending_number"]),
        uplink=plain["uplink"],
        acked_number=int(plain["acked_number"]),
        node=int(plain["node"]),
        past_servers=tuple(map(int, plain["past_servers"].split())),
    )
    if subscriber.pending:
        parse_single_frame(subscriber.pending)
        vectors = parse(subscriber.uplink).memory.vectors
        check_state(subscriber.memory, vectors, replica.layout.n if replica is not None else 0)
    return ClientState(
        subscriber,
        training_id=int(plain["training_id"]),
        answer_key=plain["answer_key"],
        local=dict(local) if isinstance(local, ArrayRecord) else {},
        answer={
            key.removeprefix(ANSWER): record
            for key, record in records.items()
            if key.startswith(ANSWER) and isinstance(record, Record)
        },
        senders={
            key: _sender_from(arrays, _prefix(index), uplink, int(number))
            for index, (key, uplink, number) in enumerate(json.loads(plain.get("records", "[]")))
        },
    )


def _sender_from(arrays: Arrays, prefix: str, uplink: str, number: int) -> RecordSender:
    layout, pending = parse_layout(arrays[prefix + "layout"].tobytes()), arrays[prefix + "pending"].tobytes()
    memory = below(arrays, f"{prefix}memory.")
    check_state(memory, parse(uplink).memory.vectors, layout.n)
    if pending:
        parse_single_frame(pending)
    return RecordSender(memory, pending, number, uplink, layout)


def _prefix(index: int) -> str:
    return f"record.{index}."


def for_training(state: ClientState, training_id: int) -> ClientState:
    """Return `state` if it belongs to `training_id`, or if that is unknown (0); otherwise an empty state."""
    return state if training_id in (0, state.training_id) else ClientState(training_id=training_id)
