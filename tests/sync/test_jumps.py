"""The grid and its jumps: whatever way a node takes from one version to another, it ends in the same bits."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.errors import CorruptError, OffGridError, TruncatedError, VersionError
from fedcomp.quantized import MAX_STEPS, UNIT, QuantizedVector, Steps, steps_in
from fedcomp.sync import DeltaStep, History, Publisher, Replica, apply_frame, jumps, start_replica
from fedcomp.sync.publisher import RESIDUAL
from fedcomp.sync.replica import split_payload
from fedcomp.wire import (
    FLAG_EXACT,
    FLAG_GRID,
    STEPS_CODEC,
    Frame,
    Kind,
    Layout,
    codec_by_id,
    decode_body,
    layout_of,
    parse_single_frame,
)
from tests.sync.logs import STC, Log, N, bits, check_routes, exact, owned, start
from tests.wire.specimens import TEXTS

METHODS = [STC, fedcomp.stc(density=0.3), fedcomp.topk(density=0.1, values="natural")]


@pytest.mark.sample(2)
@pytest.mark.parametrize("compressor", METHODS, ids=str)
@pytest.mark.parametrize("off_grid", [0, 13])
def test_every_route_from_every_version_ends_in_the_same_bits(compressor: Compressor, off_grid: int) -> None:
    assert check_routes(1, 120, compressor, off_grid) > 200


def test_chains_of_jumps_end_in_the_same_bits() -> None:
    """One node jumps at once, one in four jumps, one follows each delta."""
    log = Log()
    replicas = [start(), start(), start()]
    for version in range(1, 41):
        log.publish()
        for replica, every in zip(range(3), (40, 10, 1), strict=True):
            if version % every == 0:
                (data,) = log.publisher.route(*replicas[replica].place).frames
                assert parse_single_frame(data).kind is (Kind.DELTA if every == 1 else Kind.JUMP)
                replicas[replica] = apply_frame(replicas[replica], parse_single_frame(data))
    assert len({bits(replica) for replica in (*replicas, log.publisher.replica)}) == 1
    origins = [replica.origin for replica in (*replicas, log.publisher.replica)]
    assert len({origin.counts.tobytes() for origin in origins if origin is not None}) == 1


def test_a_node_that_is_back_after_six_hundred_versions_jumps() -> None:
    publisher, replica, rng = Publisher.begin(start()), start(), np.random.default_rng(0)
    for version in range(1, 604):
        publisher.publish(rng.standard_normal(N, np.float32) * np.float32(0.001), exact(version), STC, seed=version)
        if version <= 3:
            replica = replica.advance(publisher.history.frames()[-1])
    (jump,) = (parse_single_frame(data) for data in publisher.route(*replica.place).frames)
    assert (jump.kind, jump.base_version, jump.version) == (Kind.JUMP, 0, 603)
    assert jump.size < 0.75 * start().key_frame().size
    assert bits(replica.advance(jump)) == bits(publisher.replica)


def test_a_jump_is_far_smaller_than_its_deltas() -> None:
    log = Log()
    for _ in range(60):
        log.publish()
    (jump,) = log.publisher.route(*start().place).frames
    assert 3 * len(jump) < sum(frame.size for frame in log.publisher.history.frames())


@pytest.mark.parametrize("most", [jumps.MAX_DECODED_BYTES, 0])
def test_a_delta_is_decoded_once_for_jumps_from_many_versions(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the memory for decoded ones lasts; the jumps are the same without it."""
    decoded: list[int] = []

    def decode(codec: int, body: bytes, layout: Layout) -> QuantizedVector:
        decoded.append(codec)
        return decode_body(codec, body, layout)

    monkeypatch.setattr(jumps, "decode_body", decode)
    monkeypatch.setattr(jumps, "MAX_DECODED_BYTES", most)
    log, places = Log(), [start().place]
    for _ in range(12):
        log.publish()
        places.append(log.publisher.replica.place)
    frames, made = log.publisher.history.frames(), jumps.Jumps()
    found = [made.along(frames[since:], log.publisher.replica) for since in range(10)]
    monkeypatch.undo()
    assert found == [jumps.Jumps().along(frames[since:], log.publisher.replica) for since in range(10)]
    assert (len(decoded) == 12) == (most > 0)


def jump_of_one_sum(deltas: tuple[Frame, ...], replica: Replica) -> bytes | None:
    """Return the jump that replaces `deltas`, from their sum in a vector; None if one of them is off the grid."""
    total = np.zeros(N, np.int64)
    for frame in deltas:
        if not frame.flags & FLAG_GRID:
            return None
        steps = steps_in(
            decode_body(frame.codec, split_payload(frame, frame.payload, replica.layout, b"")[0], replica.layout)
        )
        assert steps is not None
        total[steps.indices] += steps.counts
    indices = np.flatnonzero(total)
    steps = Steps(N, indices, total[indices].astype(np.int32))
    begin, has_exact = (deltas[0].base_version, deltas[0].before), any(frame.flags & FLAG_EXACT for frame in deltas)
    return replica.jump_frame(begin, steps, exact=has_exact).to_bytes()


@pytest.mark.sample(19)
@pytest.mark.parametrize("most", [jumps.MAX_DECODED_BYTES, 1000, 0])
@pytest.mark.parametrize("off_grid", [0, 31])
@pytest.mark.parametrize("text", [text for text in TEXTS if fedcomp.parse(text).memory == RESIDUAL])
def test_jumps_are_the_same_in_whatever_order_they_are_made(
    text: str, off_grid: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jumps, "MAX_DECODED_BYTES", most)
    log, rng = Log(3, fedcomp.parse(text), off_grid), np.random.default_rng(4)
    made, found = jumps.Jumps(), 0
    for _ in range(3):
        for _ in range(12):
            log.publish()
        frames, replica = log.publisher.history.frames(), log.publisher.replica
        starts = [since for since in range(len(frames) - 1) if any(frame.flags & FLAG_GRID for frame in frames[since:])]
        expected = {since: jump_of_one_sum(frames[since:], replica) for since in starts}
        for order in (starts[::-3], starts, rng.permutation(starts).tolist(), starts[::-1]):
            assert {since: made.along(frames[since:], replica) for since in order} == {
                since: expected[since] for since in order
            }
        found += sum(jump is not None for jump in expected.values())
    assert found > 0 or not log.publisher.history.frames()[-1].flags & FLAG_GRID


def test_no_jump_is_made_whose_sum_has_too_many_units_but_the_next_one_may_be_in_range() -> None:
    replica, huge = start(), np.array([MAX_STEPS, -MAX_STEPS], np.int32)
    frames: list[Frame] = []
    for version, sign in enumerate((-1, 1, 1)):
        body = codec_by_id(STEPS_CODEC).encode(Steps(N, np.array([4, 9]), sign * huge))
        place = (version, version + 1, replica.layout.digest, version, version + 1)
        frames.append(Frame(Kind.DELTA, STEPS_CODEC, FLAG_GRID, *place, body))
    made = jumps.Jumps()
    assert made.along(tuple(frames[1:]), replica) is None
    assert made.along(tuple(frames), replica) == jump_of_one_sum(tuple(frames), replica)


def test_a_round_makes_the_jumps_of_its_nodes_once_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    log, places = Log(), [start().place]
    for _ in range(12):
        log.publish()
        places.append(log.publisher.replica.place)
    missed = {1: 3, 2: 7, 3: 3, 4: 11, 5: 5, 6: 12, 7: 9}
    for node, version in missed.items():
        record = log.publisher.nodes[node]
        record.version, record.fingerprint = places[version]
    log.publisher.nodes[7].number = 5  # it may be ahead
    begun: list[int] = []
    make = Replica.jump_frame

    def jump_frame(replica: Replica, place: tuple[int, int], steps: Steps, *, exact: bool) -> Frame:
        begun.append(place[0])
        return make(replica, place, steps, exact=exact)

    monkeypatch.setattr(Replica, "jump_frame", jump_frame)
    log.publisher.make_jumps(missed)
    assert begun == [7, 5, 3]
    other = copy.deepcopy(log.publisher)
    for version in (3, 7, 5):
        log.publisher.route(*places[version])
    assert [version for version in begun if version] == [7, 5, 3]  # from version 0, the origin, there may be one more
    monkeypatch.undo()
    for version in range(12):
        assert other.route(*places[version]) == Publisher(other.replica, other.history).route(*places[version])


def test_a_node_that_may_be_ahead_gets_no_jump_but_one_from_the_origin() -> None:
    log = Log()
    places = [log.publisher.replica.place]
    for _ in range(60):
        log.publish()
        places.append(log.publisher.replica.place)
    replayable = 0
    for version in range(1, 60):
        frames = [
            list(map(parse_single_frame, log.publisher.route(*places[version], certain=certain).frames))
            for certain in (True, False)
        ]
        assert sum(frame.size for frame in frames[0]) <= sum(frame.size for frame in frames[1])
        bases = [{frame.base_version for frame in route if frame.kind is Kind.JUMP} for route in frames]
        assert bases[0] <= {0, version}
        assert bases[1] <= {0}
        replayable += bool(bases[1] and log.publisher.history.since(*places[version]))
    assert replayable > 5, "from the origin even where the deltas are kept, if that is smaller"
    assert [frame.base_version for frame in map(parse_single_frame, log.publisher.route(*places[54]).frames)] == [54]


def test_a_delta_off_the_grid_begins_a_new_origin_and_no_jump_crosses_it() -> None:
    log = Log(off_grid=20)
    places = [log.publisher.replica.place]
    for _ in range(30):
        log.publish()
        places.append(log.publisher.replica.place)
    assert log.publisher.replica.origin is not None
    assert log.publisher.replica.origin.base.version == 20
    kinds = [parse_single_frame(data).kind for data in log.publisher.route(*places[15]).frames]
    assert kinds == [Kind.DELTA] * 15
    assert [parse_single_frame(data).kind for data in log.publisher.route(*places[21]).frames] == [Kind.JUMP]


def pushed(publisher: Publisher, values: list[float]) -> list[Replica]:
    """Publish these changes of entry 7, each alone; return what a node holds that follows each of them."""
    held = [owned(publisher.replica)]
    for value in values:
        change = np.zeros(N, np.float32)
        change[7] = value
        publisher.publish(change, publisher.replica.exact, fedcomp.stc(density=1 / N), seed=0)
        held.append(owned(held[-1]).advance(publisher.history.frames()[-1]))
    return held


def follow(publisher: Publisher, replica: Replica) -> Replica:
    for data in publisher.route(*replica.place).frames:
        replica = apply_frame(replica, parse_single_frame(data))
    return replica


def test_counts_that_would_leave_32_bits_are_published_off_the_grid() -> None:
    publisher = Publisher.begin(start())
    before = float(publisher.replica.vector[7])
    held = pushed(publisher, [1.0] * 130)
    flags = [frame.flags & FLAG_GRID for frame in publisher.history.frames()]
    assert flags[-13:] == [FLAG_GRID] * 10 + [0] + [FLAG_GRID] * 2, "2^31 units of 2^-24 are 128"
    assert publisher.replica.vector[7] == pytest.approx(before + 130, abs=1e-4)
    assert publisher.replica.origin is not None
    assert publisher.replica.origin.base.version == 128
    assert bits(follow(publisher, held[-6])) == bits(publisher.replica), "from before the version off the grid"


def test_a_sum_of_more_than_32_bits_is_no_jump() -> None:
    publisher = Publisher.begin(start())
    publisher.history = History(1 << 20)
    held = pushed(publisher, [1.0] * 127 + [-1.0] * 254)
    assert all(frame.flags & FLAG_GRID for frame in publisher.history.frames())
    assert bits(follow(publisher, held[127])) == bits(publisher.replica)


def test_an_entry_that_returns_to_minus_zero_has_its_first_bits_again() -> None:
    arrays = {"w": np.full(4, -0.0, np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    first = owned(publisher.replica)
    for value in (0.5, 0.25, -0.5, -0.25):
        publisher.publish(np.full(4, value, np.float32), b"", fedcomp.stc(density=1.0), seed=0)
    assert publisher.replica.vector.tobytes() == first.vector.tobytes()
    assert bits(follow(publisher, first)) == bits(publisher.replica)


def test_what_the_counts_hold_beyond_float32_returns_to_the_memory_where_an_origin_ends() -> None:
    arrays = {"w": np.full(2, 4096, np.float32)}  # whose last bit is 2^-11
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    grid, off_grid = fedcomp.stc(density=1.0), fedcomp.topk(density=1.0)
    steps = np.array([2.0**-14, 1.1 * 2.0**-14], np.float32)  # the second is no multiple of the grid's unit
    flags: set[int] = set()
    for number in range(16):
        publisher.publish(np.full(2, steps[number % 2]), b"", off_grid if number % 2 else grid, seed=0)
        flags.add(publisher.history.frames()[-1].flags)
    assert flags == {0, FLAG_GRID}
    moved = publisher.replica.vector.astype(np.float64) - 4096
    np.testing.assert_allclose(moved + publisher.memory["residual"], 8.0 * steps.sum(), rtol=1e-5)


def test_a_weight_that_is_rounded_keeps_nothing_back_twice() -> None:
    """On the grid the counts hold what float32 rounds off; off the grid the residual does."""
    arrays = {"w": np.ones(1, np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    for _ in range(3):
        publisher.publish(np.full(1, UNIT, np.float32), b"", fedcomp.stc(density=1.0), seed=0)
    assert publisher.replica.origin is not None
    assert publisher.replica.origin.counts.tolist() == [3]
    assert publisher.memory["residual"].tolist() == [0]


def test_changes_below_the_last_bit_of_a_weight_add_up() -> None:
    replica = start_replica(layout_of({"w": np.ones(4, np.float32)}), {"w": np.ones(4, np.float32)})
    body = codec_by_id(STEPS_CODEC).encode(Steps(4, np.array([2]), np.array([1], np.int32)))
    for _ in range(100):
        replica = replica.advance(replica.delta(STEPS_CODEC, body, b"", grid=True)[0])
    assert replica.vector.tolist() == [1, 1, 1 + 100 * UNIT, 1]


# ---- what a receiver refuses -----------------------------------------------------------------------------------------


def held() -> Replica:
    """Return a replica some steps from its origin."""
    log = Log()
    replica = start()
    for _ in range(5):
        log.publish()
        replica = replica.advance(log.publisher.history.frames()[-1])
    return replica


def jump(replica: Replica, counts: NDArray[np.int32], **changes: object) -> Frame:
    """Return the jump of the first entries by `counts`, with the fingerprint that it leads to, and other fields than that."""
    body = codec_by_id(STEPS_CODEC).encode(Steps(N, np.arange(counts.size), counts))
    place = (replica.version, replica.version + 3, replica.layout.digest, replica.fingerprint, 0)
    frame = Frame(Kind.JUMP, STEPS_CODEC, FLAG_EXACT, *place, body + exact(9))
    if not (np.abs(counts.astype(np.int64)) >= MAX_STEPS).any():
        frame = replace(frame, after=DeltaStep.of(replica, frame).fingerprint)
    return replace(frame, **changes)  # type: ignore[arg-type]


ONES = np.ones(3, np.int32)


def test_the_undamaged_jump_is_followed() -> None:
    replica = held()
    after = replica.advance(jump(replica, ONES))
    assert (after.version, after.exact) == (8, exact(9))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"version": 5}, CorruptError, "does not end"),
        ({"version": 4}, CorruptError, "does not end"),
        ({"after": 1}, CorruptError, "does not end"),
        ({"before": 1}, VersionError, "version 5"),
        ({"base_version": 6}, VersionError, "a jump from version 6"),
        ({"codec": 1, "payload": bytes(4 * N + 8)}, CorruptError, "codec 1; 11 is needed"),
        ({"codec": 4, "payload": b"\xac\x02\x00" + exact(9)}, CorruptError, "codec 4; 11 is needed"),
        ({"payload": exact(9)[:7]}, TruncatedError, "7 bytes"),
    ],
)
def test_a_jump_that_contradicts_itself_is_refused_and_the_replica_unchanged(
    changes: dict[str, object], error: type[Exception], text: str
) -> None:
    replica = held()
    before = owned(replica)
    with pytest.raises(error, match=text):
        replica.advance(jump(replica, ONES, **changes))
    assert bits(replica) == bits(before)
    assert replica.origin is not None
    assert before.origin is not None
    assert replica.origin.counts.tobytes() == before.origin.counts.tobytes()


def test_counts_whose_sum_leaves_32_bits_are_refused() -> None:
    replica = held()
    assert replica.origin is not None
    index = int(np.flatnonzero(replica.origin.counts)[0])
    counts = np.ones(index + 1, np.int32)
    counts[index] = MAX_STEPS * np.sign(replica.origin.counts[index])
    with pytest.raises(OffGridError, match="units from where it began"):
        replica.advance(jump(replica, counts))


def test_a_delta_with_the_flag_whose_values_are_no_multiples_is_refused() -> None:
    replica = held()
    body = fedcomp.topk(density=0.1).encode(np.full(N, 0.1, np.float32), {"residual": np.zeros(N, np.float32)})[0]
    frame = replica.delta(4, body, replica.exact)[0]
    with pytest.raises(OffGridError):
        replica.advance(replace(frame, flags=FLAG_GRID))
    assert replica.advance(frame).origin is None


def test_a_jump_to_an_older_version_is_passed_over() -> None:
    replica = held()
    assert replica.origin is not None
    base = replica.origin.base
    frame = jump(replace(base, vector=base.vector.copy()), ONES)
    assert frame.version == 3
    assert apply_frame(replica, frame) is replica
