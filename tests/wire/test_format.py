"""The worked example in FORMAT.md, read from the page: by the library, and bit by bit."""

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.entropy import SparseLevelsCode
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import positions
from fedcomp.quantized import Ternary
from fedcomp.split import ActivationMemory, read_activations, read_gradient, write_activations, write_gradient
from fedcomp.sync import from_key_frame, from_start_frame, start_replica
from fedcomp.sync.encoding import encode_change
from fedcomp.wire import (
    FLAG_EXACT,
    Ack,
    Frame,
    Kind,
    ServerMessage,
    codec_ids,
    decode_body,
    layout_of,
    parse_single_frame,
    server_message,
)
from tests.reference import (
    coins,
    cross_polytope_entries,
    interleaved_entries,
    rotated_entries,
    slow_fingerprint,
    slow_positions,
    split_body,
)

PAGE = (Path(fedcomp.__file__).parent / "wire" / "FORMAT.md").read_text(encoding="utf-8")
ENTRIES = {4: 0.5, 13: -0.5, 14: -0.5, 100: 0.5}
ARRAYS: dict[str, NDArray[Any]] = {"w": np.zeros((10, 20), np.float32), "steps": np.array(41, np.int64)}


def block(name: str) -> str:
    found = re.findall(rf"^```{name.replace(' ', '-')}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def octets(name: str) -> bytes:
    """Return the bytes at the beginning of each line of the block: pairs of hex digits, one space apart."""
    lines = (re.match(r"(?:[0-9a-f]{2} )*[0-9a-f]{2}(?=$|  )", line) for line in block(name).splitlines())
    return b"".join(bytes.fromhex(match.group()) for match in lines if match)


@pytest.mark.parametrize("codec", [2, 3])
def test_the_library_writes_and_reads_the_bodies_on_the_page(codec: int) -> None:
    body = octets(f"body {codec}")
    quantized = codec_ids.codec_by_id(codec).decode(body, n=200)
    assert dict(zip(quantized.indices.tolist(), quantized.sparse().values.tolist(), strict=True)) == ENTRIES
    signs = np.array([value < 0 for value in ENTRIES.values()])
    assert codec_ids.codec_by_id(codec).encode(Ternary(200, np.array(list(ENTRIES)), signs, np.float32(0.5))) == body


def test_an_independent_decoder_finds_the_entries_on_the_page() -> None:
    fields = split_body(octets("body 2"))
    assert (fields.n, fields.k, fields.magnitude, fields.rice) == (200, 4, 0.5, [4])
    assert fields.entries() == ENTRIES
    assert interleaved_entries(octets("body 3")) == (200, ENTRIES)


ROTATED = [-1, -1, 1, 0, 0, -1]
WORKED: dict[str, tuple[int, int, dict[int, float]]] = {
    "body 4": (4, 200, {4: 1.5, 13: -0.75, 14: -1.25, 100: 3}),
    "body 5": (5, 200, {4: 0.5, 13: -0.25, 14: -0.25, 100: 0.5}),
    "body 6": (6, 200, {27: 1.5, 95: -0.75, 107: -1.25, 185: 3}),
    "body 7": (7, 200, ENTRIES),
    "body 8": (8, 6, dict(enumerate(ROTATED))),
    "body 9": (9, 10, {0: 1, 2: -1, 3: 2, 5: -2, 9: 0.5}),
    "body 10": (10, 2, {0: 1, 1: -2}),
    "body 12": (12, 200, ENTRIES),
    "body 11": (11, 200, {4: 0.25, 13: -0.75, 14: 0.5, 100: 2.5}),
}
"""The contents of each further body on the page: codec, n, entries that are not zero."""


@pytest.mark.parametrize("name", WORKED)
def test_the_further_bodies_hold_the_entries_on_the_page(name: str) -> None:
    number, n, entries = WORKED[name]
    expected = np.zeros(n, np.float32)
    expected[list(entries)] = list(entries.values())
    quantized = codec_ids.codec_by_id(number).decode(octets(name), n=n)
    assert quantized.dense().tolist() == expected.tolist()
    if name == "body 5":
        assert SparseLevelsCode("delta keys").encode(quantized) == octets(name)
    else:
        assert codec_ids.codec_by_id(number).encode(quantized) == octets(name)


def test_the_body_of_some_tensors_on_the_page() -> None:
    layout = layout_of({name: np.zeros(size, np.float32) for name, size in (("a", 2), ("b", 1), ("c", 3))})
    change = np.array([0, 0, 1, 0, 0, 0], np.float32)
    assert decode_body(13, octets("body 13"), layout).dense().tolist() == change.tolist()
    assert encode_change(fedcomp.dense(), change, {}, layout, model=change)[:2] == (13, octets("body 13"))


def test_the_gamma_positions_on_the_page() -> None:
    stream, indices = octets("positions 4"), np.array(list(ENTRIES))
    assert positions.write(indices, 200, "gamma") == stream
    assert positions.read(ByteReader(stream), 200, 4).tolist() == indices.tolist()
    assert slow_positions(stream, 0, 200, 4) == (indices.tolist(), len(stream))


@pytest.mark.parametrize("name", ["body 8", "body 8 wide"])
def test_the_rotated_bodies_are_what_a_slow_reader_finds_in_their_bits(name: str) -> None:
    rotated = codec_ids.codec_by_id(8).decode(octets(name))
    assert rotated.dense().tobytes() == rotated_entries(octets(name)).tobytes()
    assert codec_ids.codec_by_id(8).encode(rotated) == octets(name)


def test_the_body_of_cross_polytopes_is_read_as_the_page_says() -> None:
    body = octets("body 14")
    quantized = codec_ids.codec_by_id(14).decode(body, n=6)
    assert quantized.dense().tolist() == [-0.5, -0.5, 0, 0, 0.5, 0]
    assert quantized.dense().tobytes() == cross_polytope_entries(body).tobytes()
    assert codec_ids.codec_by_id(14).encode(quantized) == body


def test_the_rotated_body_of_two_and_a_half_bits_is_what_the_matrix_says() -> None:
    two = [-1.5104176, -0.45278, 0.45278, 1.5104176]
    three = [-2.1519457, -1.3439093, -0.7560053, -0.2450942, 0.2450942, 0.7560053, 1.3439093, 2.1519457]
    values = [two[level] for level in (3, 2, 1, 0, 0, 1, 2, 3)] + [three[level] for level in (7, 2, 0, 5, 1, 6, 4, 3)]
    places = [
        sum(value * (-1) ** (row & offset).bit_count() for offset, value in enumerate(values)) / 4 for row in range(16)
    ]
    expected = [places[(index + 1) % 10] * (-1) ** int(coin) for index, coin in enumerate(coins(2, 10))]
    found = codec_ids.codec_by_id(8).decode(octets("body 8 wide"), n=10).dense()
    assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_layout_is_the_models() -> None:
    text = block("layout").strip().encode()
    assert layout_of(ARRAYS).text == text
    assert json.loads(text) == [["w", "float32", [10, 20], "compressed"], ["steps", "int64", [], "exact"]]


def test_the_library_writes_the_frame_and_it_leads_to_the_next_version() -> None:
    data = octets("frame")
    frame = parse_single_frame(data)
    replica = start_replica(layout_of(ARRAYS), ARRAYS, version=7)
    body, exact = octets("body 2"), (42).to_bytes(8, "little")
    assert (frame.kind, frame.codec, frame.flags, frame.payload) == (Kind.DELTA, 2, FLAG_EXACT, body + exact)
    assert replica.delta(2, body, exact)[0].to_bytes() == data
    after = replica.advance(frame)
    assert after.version == 8
    assert after.arrays()["steps"] == 42
    assert {int(i): float(after.vector[i]) for i in np.flatnonzero(after.vector)} == ENTRIES


def test_the_start_frame_on_the_page_names_version_7() -> None:
    replica, text = start_replica(layout_of(ARRAYS), ARRAYS, version=7), block("layout").strip().encode()
    assert replica.start_frame().to_bytes() == octets("start") + text
    frame = parse_single_frame(octets("start") + text)
    assert from_start_frame(frame, lambda: ARRAYS).key_frame() == replica.key_frame()


def test_the_jump_on_the_page_leads_from_version_7_or_from_later_ones_to_version_9() -> None:
    replica = start_replica(layout_of(ARRAYS), ARRAYS, version=7)
    start, jump = replica.place, parse_single_frame(octets("jump"))
    assert jump.payload == octets("body 11") + (43).to_bytes(8, "little")
    body, exact = octets("body 2"), (42).to_bytes(8, "little")
    later = start_replica(layout_of(ARRAYS), ARRAYS, version=7)
    later = later.advance(later.delta(2, body, exact, grid=True)[0])
    for after in (replica.advance(jump), later.advance(jump)):
        assert after.version == 9
        assert after.arrays()["steps"] == 43
        assert {int(i): float(after.vector[i]) for i in np.flatnonzero(after.vector)} == WORKED["body 11"][2]
        steps = codec_ids.codec_by_id(11).decode(octets("body 11"))
        assert after.jump_frame(start, steps, exact=True).to_bytes() == octets("jump")


def test_the_key_frame_on_the_page_is_version_9() -> None:
    replica = start_replica(layout_of(ARRAYS), ARRAYS, version=7).advance(parse_single_frame(octets("jump")))
    data = octets("key") + block("layout").strip().encode() + octets("key end")
    assert replica.key_frame(smallest=True).to_bytes() == data
    found = from_key_frame(parse_single_frame(data))
    assert (found.place, found.exact, found.vector.tobytes()) == (
        replica.place,
        replica.exact,
        replica.vector.tobytes(),
    )


def test_the_replay_on_the_page_adds_both_bodies() -> None:
    replica = start_replica(layout_of(ARRAYS), ARRAYS, version=7)
    deltas: list[Frame] = []
    here = start_replica(layout_of(ARRAYS), ARRAYS, version=7)
    for codec, steps in ((2, 41), (3, 43)):
        frame, step = here.delta(codec, octets(f"body {codec}"), steps.to_bytes(8, "little"))
        deltas.append(frame)
        here = here.after(step, frame.version)
    assert here.replay_frame(deltas).to_bytes() == octets("replay")
    after = replica.advance(parse_single_frame(octets("replay")))
    assert after.version == 9
    assert after.arrays()["steps"] == 43
    assert {int(i): float(after.vector[i]) for i in np.flatnonzero(after.vector)} == {
        index: 2 * value for index, value in ENTRIES.items()
    }


def test_plain_integers_find_the_fields_of_the_frame() -> None:
    data = octets("frame")
    fields = [int.from_bytes(data[offset:end], "little") for offset, end in ((8, 12), (12, 16), (40, 48), (48, 52))]
    assert fields == [7, 8, len(data) - 52, zlib.crc32(data[:48] + data[52:])]
    zeros, moved = np.zeros(200, np.float32), np.zeros(200, np.float32)
    for index, value in ENTRIES.items():
        moved[index] = value
    assert int.from_bytes(data[24:32], "little") == slow_fingerprint(zeros, (41).to_bytes(8, "little"))
    assert int.from_bytes(data[32:40], "little") == slow_fingerprint(moved, (42).to_bytes(8, "little"))


def test_the_server_message_is_what_the_library_writes_and_reads() -> None:
    head, frame = octets("message"), octets("frame")
    after = int.from_bytes(frame[32:40], "little")
    message = ServerMessage(9, Ack(3, 0xDEADBEEF), 8, after, 77, "stc(density=0.02)", (frame,))
    assert message.to_bytes() == head + frame
    assert server_message.parse_server_message(head + frame) == (message, (parse_single_frame(frame),))


def test_the_page_names_every_kind_codec_and_dtype() -> None:
    for kind in Kind:
        assert f"| {kind.value} | {kind.name} |" in PAGE
    for number in codec_ids.CODECS:
        assert re.search(rf"^### Codecs? .*\b{number}\b", PAGE, re.MULTILINE)


def test_the_page_has_a_section_for_every_codec() -> None:
    """`test_codec_ids.py` pins the ids."""
    titles = re.findall(r"^### Codecs? ([0-9, and]+):", PAGE, re.MULTILINE)
    sections = [int(number) for title in titles for number in re.findall(r"[0-9]+", title)]
    assert sorted(sections) == sorted(
        [*(number for number in codec_ids.CODECS if number < 128), codec_ids.SOME_TENSORS]
    )


def test_the_frames_of_split_learning_are_what_the_library_writes_and_reads() -> None:
    memory = ActivationMemory(2)
    memory.put([5], np.ones((1, 2), np.float32))
    rows = np.array([[1, 2], [1, 1.5]], np.float32)
    frame = write_activations([300, 5], rows, [2, 0], memory, fedcomp.dense(), number=9, round_number=1)
    assert frame.to_bytes() == octets("activation")
    batch = read_activations(parse_single_frame(octets("activation")), memory, (2,), max_batch=2, max_samples=301)
    assert (batch.ids.tolist(), batch.rows.tolist(), batch.labels.tolist()) == ([300, 5], rows.tolist(), [2])
    gradient = np.array([[0, 0.5], [-1, 0]], np.float32)
    frame = write_gradient(gradient, fedcomp.dense(), number=9, round_number=1)
    assert frame.to_bytes() == octets("gradient")
    assert read_gradient(parse_single_frame(octets("gradient")), 2, (2,), 9).tolist() == gradient.tolist()
