"""A model at a version: the same bits everywhere, and unchanged by refused frames."""

import math
import tracemalloc
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.core.compensated_update import BLOCK_ENTRIES
from fedcomp.entropy import SparseLevelsCode, StepsCode
from fedcomp.errors import CorruptError, FedcompError, LayoutError, TruncatedError, UnknownFormatError, VersionError
from fedcomp.quantized import SparseLevels, Steps
from fedcomp.sync import (
    DeltaStep,
    Origin,
    Replica,
    apply_frame,
    from_key_frame,
    from_stored,
    start_replica,
    stored_arrays,
    stored_place,
)
from fedcomp.sync.fingerprint import fingerprint
from fedcomp.sync.origin import STEP_BLOCK_ENTRIES
from fedcomp.sync.replica import LENGTH
from fedcomp.wire.codec_ids import STEPS_CODEC, codec_id
from fedcomp.wire.frame import FLAG_EXACT, FLAG_GRID, Frame, Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from tests.reference import slow_fingerprint

Arrays = dict[str, NDArray[Any]]


def model(seed: int = 0, n: int = 300) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((n // 3, 2)).astype(np.float32),
        "norm.num_batches_tracked": np.array(seed, np.int64),
        "b": rng.standard_normal(n // 3).astype(np.float64),
    }


def begin(seed: int = 0, n: int = 300) -> Replica:
    arrays = model(seed, n)
    return start_replica(layout_of(arrays), arrays)


def bits(replica: Replica) -> tuple[object, ...]:
    return replica.layout, replica.version, replica.vector.tobytes(), replica.exact, replica.fingerprint


def delta(
    replica: Replica, seed: int, compressor: fedcomp.Compressor | None = None, exact: bytes | None = None
) -> Frame:
    compressor = compressor or fedcomp.stc(0.1)
    n = replica.layout.n
    body, _ = compressor.encode(np.random.default_rng(seed).standard_normal(n, np.float32), compressor.init(n))
    return replica.delta(codec_id(compressor.entropy), body, replica.exact if exact is None else exact)[0]


def test_a_delta_is_added_by_hand() -> None:
    arrays: Arrays = {"w": np.array([1, 2, 3, 4], np.float32)}
    held = start_replica(layout_of(arrays), arrays, version=5)
    body, _ = fedcomp.stc(0.5).encode(np.array([0, -1, 0, 3], np.float32), fedcomp.stc(0.5).init(4))
    frame = held.delta(12, body, b"")[0]
    assert (frame.base_version, frame.version, frame.flags) == (5, 6, 0)
    assert (frame.before, frame.after) == (held.fingerprint, fingerprint(np.array([1, 0, 3, 6], np.float32), b""))
    after = held.advance(parse_single_frame(frame.to_bytes()))
    assert after.vector.tolist() == [1, 0, 3, 6]
    assert after.arrays()["w"].tolist() == [1, 0, 3, 6]
    assert (after.version, after.fingerprint) == (6, frame.after)


@pytest.mark.parametrize(
    "text", ["stc(density=0.1)", "stc(density=0.1, order='interleaved')", "stc(density=1)", "dense()"]
)
@pytest.mark.parametrize("n", [30, 3 * BLOCK_ENTRIES])
def test_every_holder_ends_in_the_same_bits(text: str, n: int) -> None:
    compressor = fedcomp.parse(text)
    server = begin(n=n)
    vector = server.vector.copy()
    node = from_key_frame(parse_single_frame(server.key_frame().to_bytes()))
    frames = []
    for turn in range(6):
        exact = bytes([turn + 1]) * server.layout.exact_size
        frame = delta(server, turn, compressor, exact)
        vector += compressor.decode(frame.payload[: -len(exact)], n)
        frames.append(frame.to_bytes())
        server = server.advance(frame)
    for data in frames:
        node = apply_frame(node, parse_single_frame(data))
    assert bits(node) == bits(server)
    assert node.vector.tobytes() == vector.tobytes()
    assert node.fingerprint == fingerprint(node.vector, node.exact)
    assert bits(from_key_frame(server.key_frame())) == bits(server)


def test_the_updated_fingerprint_equals_a_new_computation() -> None:
    held = begin(n=30)
    for turn in range(20):
        held = held.advance(delta(held, turn, fedcomp.stc(0.2), turn.to_bytes(8, "little")))
        assert held.fingerprint == slow_fingerprint(held.vector, held.exact)


def test_a_delta_applied_twice_or_to_an_older_version_changes_nothing() -> None:
    held = begin()
    frames = []
    for turn in range(3):
        frames.append(delta(held, turn))
        held = held.advance(frames[-1])
    before = bits(held)
    assert held.advance(frames[-1]) is held
    for frame in frames:
        assert apply_frame(held, frame) is held
    assert bits(held) == before


def test_a_gap_and_a_delta_from_another_model_of_the_same_number_are_refused() -> None:
    one, other, node = begin(), begin(), begin()
    one, other = one.advance(delta(one, 1)), other.advance(delta(other, 2))
    assert one.version == other.version
    second = delta(one, 3)
    for held, version in ((node, 0), (other, 1)):
        before = bits(held)
        for apply in (held.advance, partial(apply_frame, held)):
            with pytest.raises(VersionError, match=rf"version 1 \(\w{{16}}\); version {version} \(\w{{16}}\)"):
                apply(second)
        assert bits(held) == before


def test_a_delta_for_another_layout_is_refused_whatever_its_version() -> None:
    other = begin(n=600)
    for version in (0, 5):
        held = replace(begin(), version=version)
        before = bits(held)
        for frame in (delta(other, 1), replace(delta(other, 1), base_version=version, version=version + 1)):
            for apply in (held.advance, partial(apply_frame, held)):
                with pytest.raises(LayoutError):
                    apply(frame)
        assert bits(held) == before


def test_a_key_frame_replaces_the_replica_whatever_its_model_and_version() -> None:
    held = begin()
    with pytest.raises(VersionError, match="version 0"):
        apply_frame(None, delta(held, 1))
    assert bits(apply_frame(None, held.key_frame())) == bits(held)
    older = held.key_frame()
    held = held.advance(delta(held, 1))
    assert apply_frame(held, held.key_frame()) is held
    assert apply_frame(held, older).version == 0
    assert bits(apply_frame(held, begin(3, 600).key_frame())) == bits(begin(3, 600))


@pytest.mark.parametrize("kind", [Kind.UPDATE, Kind.ACK, Kind.RESYNC])
def test_frames_from_nodes_are_refused(kind: Kind) -> None:
    held = replace(begin(), version=3)
    frame = replace(delta(begin(), 1), kind=kind)
    for apply in (held.advance, partial(apply_frame, held), from_key_frame):
        with pytest.raises(CorruptError, match=kind.name):
            apply(frame)


def test_a_delta_that_contradicts_itself_is_refused_and_the_replica_unchanged() -> None:
    held = begin()
    frame = delta(held, 1, exact=b"\1" * 8)
    before = bits(held)
    wrong = [
        (replace(frame, after=frame.after ^ 1), CorruptError),
        (replace(frame, version=7), CorruptError),
        (replace(frame, codec=0), UnknownFormatError),
        (replace(frame, codec=99), UnknownFormatError),
        (replace(frame, codec=1), CorruptError),
        (replace(frame, payload=frame.payload[:7]), TruncatedError),
        (replace(frame, payload=frame.payload[1:]), FedcompError),
        (replace(frame, payload=frame.payload + b"\0"), FedcompError),
        (replace(frame, payload=frame.payload[:-8] + b"\2" * 8), CorruptError),
        (replace(frame, flags=0), FedcompError),
        (replace(frame, before=frame.before ^ 1), VersionError),
        (replace(frame, base_version=1), VersionError),
    ]
    for bad, error in wrong:
        for apply in (held.advance, partial(apply_frame, held)):
            with pytest.raises(error):
                apply(bad)
            assert bits(held) == before
    assert held.advance(frame).exact == b"\1" * 8


@pytest.mark.parametrize("place", [0, STEP_BLOCK_ENTRIES - 1, STEP_BLOCK_ENTRIES, 2 * STEP_BLOCK_ENTRIES])
@pytest.mark.parametrize("text", ["topk(density=1.0)", "dense()"])
def test_one_entry_beyond_float32_is_found_at_any_index(text: str, place: int) -> None:
    arrays: Arrays = {"w": np.ones(2 * STEP_BLOCK_ENTRIES + 1, np.float32)}
    arrays["w"][place] = 3e38
    held, compressor = start_replica(layout_of(arrays), arrays), fedcomp.parse(text)
    before = bits(held)
    body, _ = compressor.encode(arrays["w"], compressor.init(held.layout.n))
    codec = codec_id(compressor.entropy)
    frame = Frame(Kind.DELTA, codec, 0, 0, 1, held.layout.digest, held.fingerprint, 7, body)
    for apply in (partial(held.delta, codec, body, b""), partial(held.advance, frame)):
        with pytest.raises(CorruptError, match="float32"):
            apply()
    assert bits(held) == before


@pytest.mark.parametrize("text", ["stc(density=1.0)", "topk(density=1.0)", "dense()", "qsgd(bucket=1)"])
def test_a_step_needs_at_most_four_times_the_model_in_memory(text: str) -> None:
    n = 8 * BLOCK_ENTRIES
    arrays: Arrays = {"w": np.ones(n, np.float32)}
    held, compressor = start_replica(layout_of(arrays), arrays), fedcomp.parse(text)
    body, _ = compressor.encode(np.random.default_rng(0).standard_normal(n, np.float32), compressor.init(n))
    frame = held.delta(codec_id(compressor.entropy), body, b"")[0]
    tracemalloc.start()
    held.advance(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * n + 8 * BLOCK_ENTRIES


@pytest.mark.parametrize("text", ["stc(density=1.0)", "topk(density=1.0)", "dense()", "qsgd(bucket=1)"])
def test_a_replay_needs_at_most_five_times_the_model_and_its_bodies_in_memory(text: str) -> None:
    n = 8 * BLOCK_ENTRIES
    arrays: Arrays = {"w": np.ones(n, np.float32)}
    held, compressor, deltas = start_replica(layout_of(arrays), arrays), fedcomp.parse(text), list[Frame]()
    here = start_replica(layout_of(arrays), arrays)
    for seed in range(2):
        body, _ = compressor.encode(np.random.default_rng(seed).standard_normal(n, np.float32), compressor.init(n))
        frame, step = here.delta(codec_id(compressor.entropy), body, b"")
        deltas.append(frame)
        here = here.after(step, frame.version)
    frame = here.replay_frame(deltas)
    tracemalloc.start()
    after = held.advance(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bits(after) == bits(here)
    assert peak < 5 * 4 * n + len(frame.payload) + 8 * BLOCK_ENTRIES, "one is the next model"


def test_a_delta_of_levels_on_the_grid_needs_at_most_four_times_the_model_in_memory() -> None:
    n = 8 * BLOCK_ENTRIES
    held, rng = (
        start_replica(layout_of({"w": np.ones(n, np.float32)}), {"w": np.ones(n, np.float32)}),
        np.random.default_rng(0),
    )
    magnitudes, levels = np.array([0.5, 0.25], np.float32), rng.integers(0, 2, n).astype(np.uint8)
    body = SparseLevelsCode().encode(SparseLevels(n, np.arange(n), rng.random(n) < 0.5, levels, magnitudes))
    frame = held.delta(5, body, b"", grid=True)[0]
    held = replace(held, origin=Origin.at(held))
    tracemalloc.start()
    held.advance(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frame.flags == FLAG_GRID
    assert peak < 4 * 4 * n + 16 * BLOCK_ENTRIES + 4 * len(body), "the levels and signs, as in the body"


@pytest.mark.parametrize("most", [2, 4, 300, 2**20])
def test_a_jump_needs_at_most_four_times_the_model_in_memory(most: int) -> None:
    n = 8 * BLOCK_ENTRIES
    arrays: Arrays = {"w": np.ones(n, np.float32)}
    held = start_replica(layout_of(arrays), arrays)
    counts = np.random.default_rng(0).integers(most, 2 * most, n)
    body = StepsCode().encode(Steps(n, np.arange(n), counts.astype(np.int32)))
    frame = Frame(Kind.JUMP, STEPS_CODEC, 0, 0, 2, held.layout.digest, held.fingerprint, 0, body)
    frame = replace(frame, after=DeltaStep.of(held, frame).fingerprint)
    held = replace(held, origin=Origin.at(held))
    tracemalloc.start()
    held.advance(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * n + 16 * BLOCK_ENTRIES, "and the temporaries of a block"


def test_exact_tensors_that_are_not_finite_are_refused() -> None:
    arrays: Arrays = {"w": np.ones(3, np.float32), "norm.running_var": np.ones(1, np.float32)}
    held = start_replica(layout_of(arrays), arrays)
    bad = np.array([math.nan], np.float32).tobytes()
    with pytest.raises(CorruptError, match="norm.running_var"):
        delta(held, 1, exact=bad)
    poisoned = replace(held, exact=bad, fingerprint=fingerprint(held.vector, bad))
    with pytest.raises(CorruptError, match="norm.running_var"):
        from_key_frame(poisoned.key_frame())


def test_a_key_frame_that_contradicts_itself_is_refused() -> None:
    held = begin()
    frame = held.key_frame()
    text = held.layout.text
    longer = text.replace(b"[100,2]", b"[100,3]")
    huge = text.replace(b"[100,2]", b"[2147483648]")
    nan = frame.payload[: LENGTH.size + len(text)] + b"\0\0\xc0\x7f" + frame.payload[LENGTH.size + len(text) + 4 :]
    swapped = bytearray(frame.payload)
    swapped[-1] ^= 1
    wrong: list[Frame] = [
        replace(frame, payload=b""),
        replace(frame, payload=frame.payload[:3]),
        replace(frame, payload=LENGTH.pack(2**32 - 1) + frame.payload[4:]),
        replace(frame, payload=frame.payload[:-1]),
        replace(frame, payload=frame.payload + b"\0"),
        replace(frame, payload=LENGTH.pack(len(text)) + longer + frame.payload[4 + len(text) :]),
        replace(frame, payload=LENGTH.pack(len(huge)) + huge + frame.payload[4 + len(text) :]),
        replace(frame, payload=nan),
        replace(frame, payload=bytes(swapped)),
        replace(frame, layout=frame.layout ^ 1),
        replace(frame, after=frame.after ^ 1),
        replace(frame, before=frame.before ^ 1),
        replace(frame, base_version=1),
    ]
    for bad in wrong:
        with pytest.raises(FedcompError):
            from_key_frame(bad)


def test_a_key_frame_shares_no_memory_with_the_replica_and_a_flag_marks_exact_tensors() -> None:
    held = begin()
    frame, plain, changed = held.key_frame(), delta(held, 1), delta(held, 1, exact=b"\7" * 8)
    assert (plain.flags, changed.flags) == (0, FLAG_EXACT)
    assert len(changed.payload) == len(plain.payload) + 8
    held.vector[:] = 0
    other = from_key_frame(frame)
    assert other.vector.any()
    assert other.vector.flags.writeable


def test_a_key_frame_of_another_model_is_accepted_even_at_the_same_version_and_fingerprint() -> None:
    values = np.arange(6, dtype=np.float32)
    held, other = ({"w": values}, {"v": values.reshape(2, 3)})
    here, there = (start_replica(layout_of(arrays), arrays) for arrays in (held, other))
    assert (here.version, here.fingerprint) == (there.version, there.fingerprint)
    assert apply_frame(here, there.key_frame()).layout == there.layout


@pytest.mark.parametrize("vector", [np.zeros(2, np.float32), np.zeros(3, np.float64), np.zeros((3, 1), np.float32)])
def test_a_stored_vector_that_does_not_fit_its_layout_is_refused(vector: NDArray[Any]) -> None:
    arrays = {"w": np.ones(3, np.float32)}
    replica = start_replica(layout_of(arrays), arrays)
    stored = stored_arrays(replica)
    assert from_stored(stored_place(replica), stored).place == replica.place
    with pytest.raises(LayoutError, match=f"a stored vector of {vector.size} entries; the stored layout has 3"):
        from_stored(stored_place(replica), stored | {"vector": vector})
