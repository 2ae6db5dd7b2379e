"""A record with a memory of its own: exactly what was asked arrives in time, and hostile frames are refused."""

import hashlib
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fedcomp.errors import FedcompError
from fedcomp.methods import METHODS
from fedcomp.sync import RecordSender, decode_record, start_replica, why_uncompressed
from fedcomp.sync.replica import LENGTH
from fedcomp.wire import BFLOAT16, Frame, Kind, float32_to_bfloat16, layout_of, parse_single_frame

MODEL = start_replica(layout_of({"w": np.zeros(10, np.float32)}), {"w": np.ones(10, np.float32)}, version=3)
RECORD = {"c": np.array([4, -2, 1, 0], np.float32), "steps": np.array([7, 8])}


def _data(arrays: dict[str, np.ndarray] = RECORD, uplink: str = "dense()") -> bytes:
    return RecordSender().encode(arrays, uplink, MODEL, 5, seed=1)


def test_the_residual_comes_with_the_next_record() -> None:
    sender = RecordSender()
    first = decode_record(sender.encode(RECORD, "topk(density=0.5)", MODEL, 5, 0), 5, MODEL.layout)
    sender.settle(5)
    second = decode_record(sender.encode(RECORD, "topk(density=0.5)", MODEL, 6, 0), 6, MODEL.layout)
    np.testing.assert_array_equal(first["c"], [4, -2, 0, 0])
    np.testing.assert_array_equal(second["c"], [4, -2, 0, 0])
    np.testing.assert_array_equal(first["c"] + second["c"] + sender.memory["residual"], 2 * RECORD["c"])
    np.testing.assert_array_equal(second["steps"], [7, 8])


def test_a_record_that_was_not_accepted_returns_to_the_residual_once() -> None:
    sender = RecordSender()
    sender.encode(RECORD, "topk(density=0.5)", MODEL, 5, 0)
    for _ in range(2):
        sender.settle(4)
        np.testing.assert_array_equal(sender.memory["residual"], RECORD["c"])


def test_a_record_of_another_layout_starts_without_a_residual() -> None:
    sender = RecordSender()
    sender.encode(RECORD, "topk(density=0.5)", MODEL, 5, 0)
    sender.settle(4)
    other = {"d": RECORD["c"]}
    arrived = decode_record(sender.encode(other, "topk(density=0.5)", MODEL, 6, 0), 6, MODEL.layout)
    np.testing.assert_array_equal(arrived["d"] + sender.memory["residual"], RECORD["c"])


def test_a_record_with_the_layout_of_the_model_does_not_repeat_it() -> None:
    same, renamed = _data({"w": np.ones(10, np.float32)}), _data({"v": np.ones(10, np.float32)})
    assert len(renamed) - len(same) == len(MODEL.layout.text)
    np.testing.assert_array_equal(decode_record(same, 5, MODEL.layout)["w"], np.ones(10))


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS.about(name).uplink])
def test_a_tensor_of_zeros_stays_one_while_nothing_of_it_is_owed(name: str) -> None:
    record = {"c": np.linspace(-1, 1, 50, dtype=np.float32), "zero": np.zeros((30, 20), np.float32)}
    sender = RecordSender()
    for number in (5, 6):
        arrived = decode_record(sender.encode(record, name, MODEL, number, number), number, MODEL.layout)
        sender.settle(number)
        assert arrived["zero"].tobytes() == record["zero"].tobytes()
        assert arrived["c"].any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values_keep_their_dtype_and_come_back(dtype: str) -> None:
    values = np.array([[0.5, -2], [1024, 0]], dtype)
    arrived = decode_record(_data({"c": values}), 5, MODEL.layout)["c"]
    np.testing.assert_array_equal(arrived, values)
    assert arrived.dtype == dtype


def test_bfloat16_comes_back() -> None:
    values = float32_to_bfloat16(np.array([0.5, -2], np.float32))
    arrived = decode_record(_data({"c": values}), 5, MODEL.layout)["c"]
    assert arrived.dtype == BFLOAT16
    assert arrived.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"c": np.zeros(65537, np.float32)}, "65537 entries.* 65536"),
        ({f"t{i}": np.ones(1, np.float32) for i in range(257)}, "257 tensors.* 256"),
        ({"steps": np.arange(3)}, "no floating numbers"),
        ({}, "no floating numbers"),
        ({"c": np.zeros((0, 3))}, "no floating numbers"),
        ({"c": np.array([1, 1e16])}, "beyond 1e"),
        ({"c": np.ones((1,) * 40)}, "dimensions"),
        ({"c": np.array(["text"])}, "dtype"),
    ],
)
def test_what_cannot_be_compressed_has_a_reason(arrays: dict[str, np.ndarray], text: str) -> None:
    assert re.search(text, why_uncompressed(arrays, MODEL.layout))


def test_what_can_be_compressed_has_none() -> None:
    for arrays in (RECORD, {"c": np.zeros(65536, np.float32)}, {f"t{i}": np.ones(1) for i in range(256)}):
        assert why_uncompressed(arrays, MODEL.layout) == ""


def _forged(rows: str) -> bytes:
    """Return a frame with another layout in front of a body of three bytes."""
    frame = parse_single_frame(_data({"c": np.ones(4, np.float32)}))
    text = rows.encode()
    digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return replace(frame, layout=digest, payload=LENGTH.pack(len(text)) + text + b"\1\2\3").to_bytes()


def _changed(**fields: object) -> bytes:
    return replace(parse_single_frame(_data()), **fields).to_bytes()  # type: ignore[arg-type]


HOSTILE = {
    "no frame": b"FCMP",
    "another message": _changed(after=6),
    "another kind": _changed(kind=Kind.ACK),
    "another layout": _changed(layout=1),
    "no exact tensors": _changed(flags=0),
    "no payload": _changed(payload=b""),
    "a short payload": _changed(payload=b"\xff\xff\xff\xff1234"),
    "a short body": _changed(payload=parse_single_frame(_data()).payload[:-3]),
    "infinite values": _changed(payload=parse_single_frame(_data()).payload.replace(b"\0\0\x80\x40", b"\0\0\x80\x7f")),
    "huge values": _changed(payload=parse_single_frame(_data()).payload.replace(b"\0\0\x80\x40", b"\0\0\x00\x7f")),
    "a huge layout": _forged('[["c","float32",[1000000000],"compressed"]]'),
    "a local tensor": _forged('[["c","float32",[4],"compressed"],["d","float32",[4],"local"]]'),
    "tied tensors": _forged('[["c","float32",[60000],"compressed"],["d","float32",[60000],"tied:c"]]'),
    "no layout": _forged("[[[["),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_frames_are_refused_in_little_memory(name: str) -> None:
    assert decode_record(_data(), 5, MODEL.layout).keys() == RECORD.keys(), "the frame that they start from is valid"
    tracemalloc.start()
    try:
        with pytest.raises(FedcompError):
            decode_record(HOSTILE[name], 5, MODEL.layout)
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()


def test_every_changed_byte_is_refused() -> None:
    data = _data()
    for place in range(len(data)):
        with pytest.raises(FedcompError):
            decode_record(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :], 5, MODEL.layout)


def test_a_float16_beyond_its_range_is_the_largest_one() -> None:
    data = parse_single_frame(_data({"c": np.array([4, 1], np.float16)}))
    forged = Frame(
        data.kind, data.codec, 0, 3, 3, data.layout, data.before, 5,
        data.payload.replace(b"\0\0\x80\x40", b"\0\0\x80\x4f"),
    )  # fmt: skip
    assert decode_record(forged.to_bytes(), 5, MODEL.layout)["c"].tolist() == [65504, 1]


def test_a_record_of_far_more_tensors_than_the_model_is_refused() -> None:
    decode_record(_data({f"t{i}": np.ones(1, np.float32) for i in range(256)}), 5, MODEL.layout)
    with pytest.raises(FedcompError, match="257 tensors; at most 256"):
        decode_record(_data({f"t{i}": np.ones(1, np.float32) for i in range(257)}), 5, MODEL.layout)


def test_what_is_owed_beyond_the_dtype_arrives_in_parts_also_when_nothing_new_comes() -> None:
    """Random choice leaves 60,000 unsent for a few rounds; float16 ends at 65,504."""
    sender = RecordSender()
    asked, arrived = np.zeros(2), np.zeros(2)
    for number in range(1, 60):
        values = np.array([60_000 if number < 10 else 0, 0], np.float16)
        data = sender.encode({"c": values}, "randk(density=0.5)", MODEL, number, number)
        sender.settle(number)
        asked += values
        arrived += decode_record(data, number, MODEL.layout)["c"]
        np.testing.assert_array_equal(arrived + sender.memory["residual"], asked)
    np.testing.assert_array_equal(arrived, asked)


def test_a_record_of_a_large_model_may_have_four_times_its_entries() -> None:
    layout = layout_of({"w": np.zeros(20_000, np.float32)})
    assert why_uncompressed({"c": np.zeros(80_000, np.float32)}, layout) == ""
    assert re.search("80001 entries.* 80000", why_uncompressed({"c": np.zeros(80_001, np.float32)}, layout))
