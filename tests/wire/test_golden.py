"""Golden files: they decode to the same values as ever, and the library writes them again to the byte."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedcomp
from fedcomp.core import parse_call
from fedcomp.entropy import (
    GolombTernary,
    GolombTernaryInterleaved,
    Raw,
    SeededValues,
    SparseLevelsCode,
    SparseValues,
    StepsCode,
    TernaryCode,
)
from fedcomp.quantized import Dense, Sparse, SparseLevels, Ternary
from fedcomp.split import ActivationMemory, read_activations, read_gradient, write_activations, write_gradient
from fedcomp.sync import Replica, from_key_frame, from_start_frame, split_payload, start_replica
from fedcomp.sync.encoding import encode_change
from fedcomp.wire import (
    CODECS,
    FLAG_EXACT,
    SECONDS,
    Kind,
    ServerMessage,
    ack_of,
    codec_id,
    layout_of,
    parse_single_frame,
    server_message,
)
from tests.golden.content import (
    MODEL,
    UPDATE,
    N,
    activations,
    clustered,
    half_of_them,
    levels,
    powers,
    seeded,
    series,
    sparse,
    steps,
    ternary,
    ternary_clusters,
)
from tests.golden.method_file import FOLDER, MethodFile, digest, encode
from tests.reference import (
    interleaved_entries,
    levels_entries,
    slow_fingerprint,
    slow_stc,
    sparse_entries,
    split_body,
    steps_entries,
    ternary_entries,
)

GOLDEN = Path(__file__).parents[1] / "golden"
HALF = np.float32(0.5)
METHODS = {path.stem: MethodFile.parse(path.read_text()) for path in sorted(FOLDER.iterdir())}


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def replica() -> Replica:
    return from_key_frame(parse_single_frame(golden("key.frame")))


def test_every_golden_file_is_known_and_every_codec_and_kind_has_one() -> None:
    names = {path.name for path in GOLDEN.iterdir() if path.suffix in (".body", ".frame", ".message")}
    assert names == {
        "cgx_random.body",
        *("raw.body", "golomb.body", "golomb_interleaved.body", "empty.body", "stc.body"),
        *("sparse_fp32.body", "sparse_bf16.body", "sparse_fp16.body", "sparse_natural.body"),
        *(
            "levels.body",
            "levels_series.body",
            "seeded.body",
            "steps.body",
            "ternary_gamma.body",
            "delta_grid.frame",
            "delta_some.frame",
            "jump.frame",
            "replay.frame",
            "key_steps.frame",
        ),
        *(
            "key.frame",
            "delta.frame",
            "delta_dense.frame",
            "delta_some.frame",
            "update.frame",
            "ack.frame",
            "resync.frame",
            "start.frame",
        ),
        *("activation.frame", "direct.frame", "gradient.frame"),
        "plain.message",
        "training.message",
        "epoch.message",
    }
    assert {parse_single_frame(golden(name)).kind for name in names if name.endswith(".frame")} == set(Kind)
    methods = {codec_id(fedcomp.parse(file.text).entropy) for file in METHODS.values()}
    assert methods | {2, 3, 11, 12} == set(CODECS), "a new codec needs a golden file"


def test_the_raw_body() -> None:
    assert Raw().decode(golden("raw.body")).vector.tobytes() == UPDATE[:64].tobytes()
    assert Raw().encode(Dense(UPDATE[:64])) == golden("raw.body")


@pytest.mark.parametrize("code", [GolombTernary(), GolombTernaryInterleaved()])
def test_the_ternary_bodies(code: GolombTernary | GolombTernaryInterleaved) -> None:
    name = "golomb.body" if isinstance(code, GolombTernary) else "golomb_interleaved.body"
    expected = ternary()
    found = code.decode(golden(name), N)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.negative, expected.negative)
    assert (found.n, found.magnitude) == (N, expected.magnitude)
    assert code.encode(expected) == golden(name)


def test_the_ternary_body_with_positions_in_gamma_code() -> None:
    body, expected = golden("ternary_gamma.body"), ternary_clusters()
    found = TernaryCode().decode(body, N)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.negative, expected.negative)
    assert (found.n, found.magnitude) == (N, expected.magnitude)
    assert TernaryCode().encode(expected) == body
    sparse = expected.sparse()
    assert ternary_entries(body) == (N, dict(zip(sparse.indices.tolist(), sparse.values.tolist(), strict=True)))


def test_independent_decoders_find_the_same_ternary_entries() -> None:
    sparse = ternary().sparse()
    expected = dict(zip(sparse.indices.tolist(), sparse.values.tolist(), strict=True))
    assert split_body(golden("golomb.body")).entries() == expected
    assert interleaved_entries(golden("golomb_interleaved.body")) == (N, expected)


@pytest.mark.parametrize(
    ("name", "positions", "expected"),
    [
        ("fp32", "smallest", sparse()),
        ("bf16", "smallest", half_of_them()),
        ("fp16", "delta keys", clustered()),
        ("natural", "smallest", powers()),
    ],
    ids=["fp32", "bf16", "fp16", "natural"],
)
def test_the_bodies_of_values(name: str, positions: str, expected: Sparse) -> None:
    body = golden(f"sparse_{name}.body")
    found = SparseValues().decode(body, expected.n)
    assert np.array_equal(found.indices, expected.indices)
    assert (found.n, found.values.tobytes()) == (expected.n, expected.values.tobytes())
    assert SparseValues(positions).encode(expected) == body
    entries = dict(zip(expected.indices.tolist(), expected.values.tolist(), strict=True))
    assert sparse_entries(body) == (expected.n, entries)


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [("levels", SparseLevelsCode(), levels()), ("levels_series", SparseLevelsCode("delta keys"), series())],
    ids=["listed", "series"],
)
def test_the_bodies_of_levels(name: str, code: SparseLevelsCode, expected: SparseLevels) -> None:
    body = golden(f"{name}.body")
    found = SparseLevelsCode().decode(body, N)
    for field in ("indices", "negative", "levels", "magnitudes"):
        assert np.array_equal(getattr(found, field), getattr(expected, field))
    assert (found.n, found.base) == (N, expected.base)
    assert code.encode(expected) == body
    kept = expected.sparse()
    assert levels_entries(body) == (N, dict(zip(kept.indices.tolist(), kept.values.tolist(), strict=True)))


def test_the_body_of_a_seed() -> None:
    expected = seeded()
    found = SeededValues().decode(golden("seeded.body"), N)
    assert (found.n, found.seed, found.values.tobytes()) == (N, expected.seed, expected.values.tobytes())
    assert np.array_equal(found.indices, expected.indices)
    assert SeededValues().encode(expected) == golden("seeded.body")


def test_the_body_of_an_empty_selection() -> None:
    assert not GolombTernary().decode(golden("empty.body"), N).dense().any()


def test_the_body_of_sparse_ternary_compression() -> None:
    compressor = fedcomp.stc(1 / 50)
    assert compressor.decode(golden("stc.body"), N).tobytes() == slow_stc(UPDATE, 1 / 50).tobytes()
    assert compressor.encode(UPDATE, compressor.init(N))[0] == golden("stc.body")


def test_the_body_of_random_levels() -> None:
    """Its layout is that of the levels to which CGX rounds: each entry is one of the two next to it."""
    text = "cgx(bits=3, rounding='random')"
    body = golden("cgx_random.body")
    assert encode(text) == body
    found, step = fedcomp.parse(text).decode(body, 3000), (UPDATE[:2000].max() - UPDATE[:2000].min()) / 7
    assert 0.5 * step < np.abs(found[:2000] - UPDATE[:2000]).max() <= step
    assert found[2000:2040].tobytes() == UPDATE[2000:2040].tobytes(), "a vector is dense"


def test_the_body_of_steps() -> None:
    found = StepsCode().decode(golden("steps.body"), N)
    assert np.array_equal(found.indices, steps().indices)
    assert np.array_equal(found.counts, steps().counts)
    assert StepsCode().encode(steps()) == golden("steps.body")
    counts = dict(zip(steps().indices.tolist(), steps().counts.tolist(), strict=True))
    assert steps_entries(golden("steps.body")) == (N, counts)


def test_the_key_frame() -> None:
    sent = {name: array for name, array in MODEL.items() if not name.startswith("head")}
    layout = layout_of(MODEL, local=["head.*"])
    held = replica()
    assert (held.layout, held.version) == (layout, 41)
    for name, array in held.arrays().items():
        assert (array.dtype, array.shape, array.tobytes()) == (sent[name].dtype, sent[name].shape, sent[name].tobytes())
    assert held.fingerprint == slow_fingerprint(held.vector, held.exact)
    assert start_replica(layout, sent, 41).key_frame().to_bytes() == golden("key.frame")


def test_the_key_frame_of_a_vector_on_the_grid() -> None:
    """The entries of `MODEL` are multiples of 2^-10."""
    held, frame = replica(), parse_single_frame(golden("key_steps.frame"))
    found = from_key_frame(frame)
    assert (frame.codec, found.vector.tobytes(), found.exact) == (11, held.vector.tobytes(), held.exact)
    assert found.key_frame().to_bytes() == golden("key.frame")
    assert held.key_frame(smallest=True).to_bytes() == golden("key_steps.frame")


def test_the_start_frame() -> None:
    frame = parse_single_frame(golden("start.frame"))
    assert from_start_frame(frame, lambda: MODEL).key_frame().to_bytes() == golden("key.frame")
    assert replica().start_frame().to_bytes() == golden("start.frame")


def test_the_delta_frames() -> None:
    held = replica()
    n = held.layout.n
    vector = held.vector + slow_stc(UPDATE[:n], 1 / 10)
    first = held.advance(parse_single_frame(golden("delta.frame")))
    assert (first.version, first.vector.tobytes()) == (42, vector.tobytes())
    assert first.arrays()["norm.num_batches_tracked"] == 1234
    second = first.advance(parse_single_frame(golden("delta_dense.frame")))
    assert (second.version, second.vector.tobytes()) == (43, (vector + UPDATE[:n]).tobytes())
    assert second.fingerprint == slow_fingerprint(second.vector, second.exact)


def test_the_delta_frames_are_written_again_to_the_byte() -> None:
    held = replica()
    delta = parse_single_frame(golden("delta.frame"))
    body, exact = split_payload(delta, delta.payload, held.layout, held.exact)
    assert held.delta(2, body, exact)[0].to_bytes() == golden("delta.frame")
    held = held.advance(delta)
    dense = parse_single_frame(golden("delta_dense.frame"))
    assert held.delta(1, dense.payload, held.exact)[0].to_bytes() == golden("delta_dense.frame")


def test_the_delta_of_some_tensors() -> None:
    """Of four tensors the last two move, by the first entries of `UPDATE`: 0011 and four bits of padding, then codec 1."""
    held, change = replica(), np.zeros(replica().layout.n, np.float32)
    change[-22:] = UPDATE[:22]
    frame = parse_single_frame(golden("delta_some.frame"))
    assert (frame.codec, frame.payload[:2]) == (13, bytes([0b00110000, 1]))
    end = replica().advance(frame)
    assert end.vector.tobytes() == (held.vector + change).tobytes()
    assert end.fingerprint == slow_fingerprint(end.vector, end.exact)
    codec, body, _ = encode_change(fedcomp.dense(), change, {}, held.layout, model=held.vector)
    assert held.delta(codec, body, held.exact)[0].to_bytes() == golden("delta_some.frame")


def test_the_frames_on_the_grid() -> None:
    """Both lead away from version 41: a node that has followed the delta goes back there to follow the jump."""
    held, start = replica(), replica()
    n = held.layout.n
    kept = ternary().indices < n
    body = GolombTernary().encode(Ternary(n, ternary().indices[kept], ternary().negative[kept], np.float32(2**-6)))
    assert held.delta(2, body, held.exact, grid=True)[0].to_bytes() == golden("delta_grid.frame")
    held = held.advance(parse_single_frame(golden("delta_grid.frame")))
    jump = parse_single_frame(golden("jump.frame"))
    vector = start.vector.astype(np.float64)
    for index, count in steps_entries(jump.payload[: -len(held.exact)])[1].items():
        vector[index] += count / 2**24
    for end in (start.advance(jump), held.advance(jump)):
        assert (end.version, end.vector.tobytes()) == (43, vector.astype(np.float32).tobytes())
        assert end.arrays()["norm.num_batches_tracked"] == 1234
        assert end.fingerprint == slow_fingerprint(end.vector, end.exact)
        assert end.jump_frame((41, jump.before), steps(n, 14), exact=True).to_bytes() == golden("jump.frame")


def test_the_replay_frame() -> None:
    """It stands for the two delta frames."""
    deltas = [parse_single_frame(golden(name)) for name in ("delta.frame", "delta_dense.frame")]
    held = replica()
    for delta in deltas:
        held = held.advance(delta)
    assert held.replay_frame(deltas).to_bytes() == golden("replay.frame")
    end = replica().advance(parse_single_frame(golden("replay.frame")))
    assert (end.place, end.exact, end.vector.tobytes()) == (held.place, held.exact, held.vector.tobytes())


def test_the_answers_of_a_node() -> None:
    delta = parse_single_frame(golden("delta.frame"))
    update, held, lost = (parse_single_frame(golden(f"{name}.frame")) for name in ("update", "ack", "resync"))
    assert (update.kind, held.kind, lost.kind) == (Kind.UPDATE, Kind.ACK, Kind.RESYNC)
    assert (update.codec, update.flags, update.payload) == (2, FLAG_EXACT, SECONDS.pack(0.25, 0.5) + delta.payload)
    here = (42, 42, delta.layout, delta.after, 9)
    for frame in (update, held):
        assert (frame.base_version, frame.version, frame.layout, frame.before, frame.after) == here
    assert replace(lost, after=0) == type(lost)(Kind.RESYNC, 0, 0, 0, 0, 0, 0, 0)
    assert lost.after == 9


@pytest.mark.parametrize("direct", [False, True])
def test_the_activations_of_a_batch(direct: bool) -> None:
    ids, rows, memory = range(10, 18), activations(), ActivationMemory(0 if direct else 12)
    memory.put(ids[:6], rows[:6, : memory.row_size] * HALF)
    compressor, answer = fedcomp.cgx(bits=2), {"number": 9, "round_number": 3}
    name = "direct.frame" if direct else "activation.frame"
    frame = write_activations(ids, rows, range(8), memory, compressor, direct=direct, shape=(3, 4), **answer)
    assert frame.to_bytes() == golden(name)
    batch = read_activations(frame, memory, (3, 4), max_batch=8, max_samples=18, direct=direct)
    assert (batch.ids.tolist(), batch.labels.tolist()) == (list(ids), [6, 7])
    values = rows.ravel() if direct else (rows[:6] * HALF).ravel()
    body, _ = compressor.encode(values, {})
    decoded = compressor.decode(body).reshape(-1, 12)
    expected = decoded if direct else np.concatenate((rows[:6] * HALF + decoded, rows[6:]))
    assert batch.rows.tobytes() == expected.tobytes()


def test_the_gradient_of_a_batch() -> None:
    frame = write_gradient(activations(), fedcomp.cgx(bits=4), shape=(3, 4), number=9, round_number=3)
    assert frame.to_bytes() == golden("gradient.frame")
    body, _ = fedcomp.cgx(bits=4).encode(activations().ravel(), {})
    expected = fedcomp.cgx(bits=4).decode(body)
    assert read_gradient(frame, 8, (3, 4), 9).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "training_id", "epoch"),
    [("plain", 0, 0), ("training", 2**64 - 3, 0), ("epoch", 2**64 - 3, 2**62 + 5)],
)
def test_the_server_messages(name: str, training_id: int, epoch: int) -> None:
    key, delta, update = golden("key.frame"), golden("delta.frame"), golden("update.frame")
    after = parse_single_frame(delta).after
    text, frames = "stc(density=0.1)", (key, delta)
    message = ServerMessage(10, ack_of(9, update), 42, after, 2**63 + 5, text, frames, training_id, epoch)
    parsed = tuple(parse_single_frame(data) for data in frames)
    assert server_message.parse_server_message(golden(f"{name}.message")) == (message, parsed)
    assert message.to_bytes() == golden(f"{name}.message")


def test_every_method_has_a_golden_file() -> None:
    """`python -m tests.golden NAME` writes a missing one."""
    assert set(METHODS) == set(fedcomp.METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_the_golden_body_of_a_method_decodes_to_the_same_bits_and_is_written_again(name: str) -> None:
    file = METHODS[name]
    assert parse_call(file.text)[0] == name
    assert digest(file.text, file.body) == file.digest
    body = encode(file.text)
    if name == "powersgd":  # its factors are matrix products, which machines round differently
        compressor = fedcomp.parse(file.text)
        assert np.allclose(compressor.decode(body, 3000), compressor.decode(file.body, 3000), atol=1e-4)
    else:
        assert body == file.body
