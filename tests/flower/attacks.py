"""Replies that an attacker may send in place of a node's own: of other records, forged frames, and extreme values."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

import fedcomp
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.flower import LocalGrid, records
from fedcomp.sync.replica import start_replica
from fedcomp.wire.frame import FLAG_EXACT, SECONDS, Frame, Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from tests.flower.toy import app, arrays_of, model
from tests.wire.mutations import seal_frame

NODES = 5
Change = Callable[[Message], list[Message]]
"""Returns the messages that arrive in place of a reply."""
Forge = Callable[[Frame], Iterable[Frame | bytes]]
"""Returns what an attacker makes of a frame."""


def copied(reply: Message) -> Message:
    """Return a copy of a reply, which may be changed."""
    other = Message(RecordDict(dict(reply.content.items())), reply_to=reply)
    other.metadata.__dict__.update(reply.metadata.__dict__)
    return other


class Meddling(LocalGrid):
    """A grid that changes the replies of one node, of all if that is 0, to messages of one type."""

    def __init__(
        self,
        change: Change,
        node: int = 2,
        kind: str = "train",
        client_app: ClientApp | None = None,
        nodes: int = NODES,
    ) -> None:
        super().__init__(client_app or app(), nodes)
        self.change, self._node, self._kind = change, node, kind

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        for reply in super().send_and_receive(messages, timeout=timeout):
            meddle = self._node in (0, reply.metadata.src_node_id) and reply.metadata.message_type == self._kind
            yield from self.change(reply) if meddle and reply.has_content() else [reply]


def set_record(key: str, record: MetricRecord | ArrayRecord) -> Change:
    def change(reply: Message) -> list[Message]:
        reply.content[key] = record
        return [reply]

    return change


def without_metrics(reply: Message) -> list[Message]:
    if "metrics" in reply.content:  # a node that asks for a key frame sends none
        del reply.content["metrics"]
    return [reply]


def frame_of(reply: Message) -> Frame:
    found = records.packed(reply.content)
    assert found is not None
    return parse_single_frame(found[1])


def sends(forge: Callable[[Frame], Frame | bytes]) -> Change:
    """Return the change that sends `forge` of the node's own frame."""

    def change(reply: Message) -> list[Message]:
        forged = forge(frame_of(reply))
        reply.content["arrays"] = records.pack(forged if isinstance(forged, bytes) else forged.to_bytes())
        return [reply]

    return change


def with_body(frame: Frame, codec: int, body: bytes) -> Frame:
    return replace(frame, codec=codec, flags=0, payload=frame.payload[: SECONDS.size] + body)


def held(frame: Frame) -> Frame:
    return replace(frame, kind=Kind.ACK, payload=b"", flags=0, codec=0)


STC = fedcomp.stc()
MISFITS: dict[str, Change] = {
    "no weight": set_record("metrics", MetricRecord({"loss": 1.0})),
    "a list for the weight": set_record("metrics", MetricRecord({"num-examples": [1], "loss": 1.0})),
    "two metric records": set_record("more", MetricRecord({"num-examples": 1, "loss": 1.0})),
    "no metric record": without_metrics,
    "an array record too many": set_record("more", ArrayRecord({"w": Array(np.ones(3))})),
    "plain arrays": set_record("arrays", ArrayRecord({"w": Array(np.ones(3))})),
    "a huge weight": set_record("metrics", MetricRecord({"num-examples": 1.7e308, "loss": 1.0})),
    "a weight that no float holds": set_record("metrics", MetricRecord({"num-examples": 10**400, "loss": 1.0})),
    "an infinite weight": set_record("metrics", MetricRecord({"num-examples": float("inf"), "loss": 1.0})),
    "a weight of NaN": set_record("metrics", MetricRecord({"num-examples": float("nan"), "loss": 0.0})),
    "a negative weight": set_record("metrics", MetricRecord({"num-examples": -5, "loss": 0.0})),
    "no update": sends(held),
    "a huge update": sends(lambda frame: with_body(frame, 1, np.full(1025, 3.3e38, "<f4").tobytes())),
    "an update of 1.1e15": sends(lambda frame: with_body(frame, 1, np.full(1025, 1.1e15, "<f4").tobytes())),
    "another length": sends(lambda frame: with_body(frame, 2, STC.encode(np.ones(99, np.float32), STC.init(99))[0])),
    "cut short": sends(lambda frame: frame.to_bytes()[:-3]),
    "one bit flipped": sends(lambda frame: bytes(b ^ (i == 60) for i, b in enumerate(frame.to_bytes()))),
    "bytes behind it": sends(lambda frame: frame.to_bytes() + b"x"),
    "another version": sends(lambda frame: replace(frame, version=77)),
    "another base": sends(lambda frame: replace(frame, before=77)),
    "an unknown codec": sends(lambda frame: replace(frame, codec=99)),
    "the server's own kind": sends(lambda frame: replace(frame, kind=Kind.DELTA)),
}
"""Replies that do not fit; those of `tests/flower/test_hostile_nodes.py` are hostile in other ways."""
ONLY_MEANS_TAKE = "an array record too many"
"""The one of `MISFITS` that counts where the strategy only averages: then nothing reads that record."""
ODD_METRICS: dict[str, Change] = {
    "other metrics": set_record("metrics", MetricRecord({"num-examples": 1, "lost": 1.0})),
    "no metrics but the weight": set_record("metrics", MetricRecord({"num-examples": 1})),
    "many metrics": set_record("metrics", MetricRecord({"num-examples": 1, **{f"m{i}": 1.0 for i in range(50)}})),
    "a list for a number": set_record("metrics", MetricRecord({"num-examples": 1, "loss": [1.0, 2.0]})),
}
"""Replies that count, although their metrics are not those of the other replies."""


def garbage(_: Frame) -> Iterable[Frame | bytes]:
    rng = np.random.default_rng(3)
    return b"", bytes(70), rng.bytes(3000), b"FCMP\1\3" + rng.bytes(300), b"FCMP" * 500_000


def another_model(frame: Frame) -> Iterable[Frame | bytes]:
    tensors = arrays_of(model((25, 40)))
    other = start_replica(layout_of(tensors), tensors)
    yield replace(frame, layout=other.layout.digest, before=other.fingerprint)
    yield replace(frame, layout=other.layout.digest)


def nans(frame: Frame) -> Iterable[Frame | bytes]:
    for value in (np.nan, np.inf, -np.inf):
        vector = np.zeros(1025, "<f4")
        vector[77] = value
        yield with_body(frame, 1, vector.tobytes())
    yield with_body(
        frame, 2, write_varint(1025) + write_varint(1) + np.array(np.nan, "<f4").tobytes() + bytes([0, 1, 0, 0])
    )


def lying_length(frame: Frame) -> Iterable[Frame | bytes]:
    whole = frame.to_bytes()
    for length in (0, len(frame.payload) - 1, len(frame.payload) + 1, 2**32, 2**63 - 1, 2**64 - 1):
        yield seal_frame(whole[:40] + length.to_bytes(8, "little") + whole[48:], length=False)


def gigabytes(frame: Frame) -> Iterable[Frame | bytes]:
    """Claims of 2 GB in a hundred bytes: as the payload's length, as entries, as kept entries, as parts of a vector."""
    whole = frame.to_bytes()
    yield whole[:40] + (2 << 30).to_bytes(8, "little") + whole[48:]
    yield seal_frame(whole[:40] + (2 << 30).to_bytes(8, "little") + whole[48:], length=False)
    entries, ours, one = write_varint(2**29), write_varint(1025), np.array(1, "<f4").tobytes()
    for codec in (2, 3, 4, 5, 6, 8):
        yield with_body(frame, codec, entries + entries + one + bytes(40))
    for codec in (2, 3, 4, 5, 6, 9):
        yield with_body(frame, codec, ours + entries + one + bytes(40))
    equal_levels = bytes([0]) + write_varint(3) + entries + one + bytes([0, 1, 0b0100_0000])
    yield with_body(frame, 7, entries + equal_levels)
    yield with_body(frame, 10, write_varint(1) + bytes([1]) + entries + bytes([16]) + entries + equal_levels)


FORGERIES: tuple[Forge, ...] = (garbage, another_model, nans, lying_length, gigabytes)


def sends_each(forge: Forge) -> Change:
    """Return the change to copies of a reply, one with each frame of `forge`."""

    def change(reply: Message) -> list[Message]:
        replies: list[Message] = []
        for made in forge(frame_of(reply)):
            replies.append(copied(reply))
            replies[-1].content["arrays"] = records.pack(made if isinstance(made, bytes) else made.to_bytes())
        return replies

    return change


def update_of(value: float, weight: float = 1) -> Change:
    """Return the change to an update of `value` in each entry, of this weight."""

    def change(reply: Message) -> list[Message]:
        vector = np.full(1025, value, "<f4")
        reply = sends(lambda frame: with_body(frame, 1, vector.tobytes()))(reply)[0]
        return set_record("metrics", MetricRecord({"num-examples": weight, "loss": 1.0}))(reply)

    return change


def exact_of(value: NDArray[Any]) -> Change:
    """Return the change to other exact tensors: the bytes of `value`."""
    return sends(
        lambda frame: replace(frame, payload=frame.payload[: -value.nbytes] + value.tobytes(), flags=FLAG_EXACT)
    )


EXTREMES: dict[str, Change] = {
    "a weight of 0": update_of(1, 0),
    "no change, of weight 0": update_of(0, 0),
    "no change, of the smallest weight": update_of(0, 5e-324),
    "the smallest weight": update_of(1, 5e-324),
    "the largest weight": update_of(1, 2**53),
    "the smallest update": update_of(1e-45),
    **{f"an update of {value:g}": update_of(value) for value in (1e3, 9.9e14, -9.9e14)},
    "a large update of the largest weight": update_of(9.9e14, 2**53),
    **{f"a counter of {value}": exact_of(np.array(value, "<i8")) for value in (2**63 - 1, -(2**63))},
}
"""Valid replies with values that no honest node has."""
EVALUATIONS: dict[str, Change] = {
    "no weight": set_record("metrics", MetricRecord({"sum": 1.0})),
    "no metrics": without_metrics,
    "two metric records": set_record("more", MetricRecord({"num-examples": 1, "sum": 1.0})),
    "other metrics": set_record("metrics", MetricRecord({"num-examples": 1, "other": 1.0})),
    "a list": set_record("metrics", MetricRecord({"num-examples": 1, "sum": [1.0]})),
    "infinite metrics": set_record("metrics", MetricRecord({"num-examples": 1, "sum": float("inf")})),
    **{
        f"a weight of {weight}": set_record("metrics", MetricRecord({"num-examples": weight, "sum": 1.0}))
        for weight in (-4, 0, 2**53, 2**53 + 1, float("nan"), float("inf"))
    },
}
"""Replies to an evaluation."""
