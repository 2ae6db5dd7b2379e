"""Replays: many deltas off the grid in one frame, which ends in the same bits as the deltas one after the other."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.errors import CorruptError, FedcompError, TruncatedError, VersionError
from fedcomp.flower.client.in_memory import DecodeCache
from fedcomp.sync import DeltaStep, History, Publisher, Replica, apply_frame, start_replica
from fedcomp.sync.fingerprint import MODULUS_MASK, exact_part
from fedcomp.wire import FLAG_EXACT, FLAG_GRID, Frame, Kind, join_bodies, layout_of, parse_single_frame, read_bodies
from tests.sync.logs import Log, N, bits, check_routes, exact, owned, start

EDEN = fedcomp.eden(bits=0.5)
METHODS = [EDEN, fedcomp.hierarchical(density=0.1), fedcomp.topk(density=0.05)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("compressor", METHODS, ids=str)
def test_every_route_from_every_version_ends_in_the_same_bits(compressor: Compressor) -> None:
    assert check_routes(2, 180, compressor) > 300


def followed(versions: int) -> tuple[Log, list[Replica]]:
    """Return a log of that many versions, and what a node holds at each version that follows every delta."""
    log, held = Log(compressor=EDEN), [start()]
    for _ in range(versions):
        log.publish()
        held.append(owned(held[-1]).advance(log.publisher.history.frames()[-1]))
    return log, held


def route(log: Log, replica: Replica, *, certain: bool = True) -> list[Frame]:
    return [parse_single_frame(data) for data in log.publisher.route(*replica.place, certain=certain).frames]


def test_missed_deltas_are_one_frame_with_the_exact_tensors_once() -> None:
    """The counter changes with the versions 7 and 14."""
    log, held = followed(15)
    (frame,) = route(log, held[3])
    deltas = log.publisher.history.frames()[-12:]
    assert frame.kind is Kind.REPLAY
    assert sum(bool(delta.flags & FLAG_EXACT) for delta in deltas) == 2
    assert frame.size == sum(delta.size for delta in deltas) - 12 * 52 - 8 + 52 + 12 * 2
    assert log.publisher.route(*held[3].place).bytes_by_kind() == {"replay_bytes": frame.size}


def test_a_replay_of_deltas_without_exact_tensors_has_none() -> None:
    log, held = followed(13)
    (frame,) = route(log, held[8])
    assert frame.flags == 0
    assert bits(held[8].advance(frame)) == bits(log.publisher.replica)


def test_one_missed_delta_needs_no_replay() -> None:
    log, held = followed(15)
    assert [frame.kind for frame in route(log, held[14])] == [Kind.DELTA]


@pytest.mark.parametrize("ahead", [3, 4, 9, 14, 15])
def test_a_node_that_is_ahead_passes_over_the_deltas_that_it_knows(ahead: int) -> None:
    log, held = followed(15)
    (frame,) = route(log, held[3], certain=False)
    assert frame.kind is Kind.REPLAY
    assert bits(apply_frame(held[ahead], frame)) == bits(log.publisher.replica)


def test_a_node_on_another_branch_refuses_a_replay_and_is_unchanged() -> None:
    """A server that came back from an old checkpoint has published other versions under the same numbers."""
    log, held = followed(15)
    (frame,) = route(log, held[3])
    other = Log(seed=1, compressor=EDEN)
    for _ in range(9):
        other.publish()
    before = owned(other.publisher.replica)
    with pytest.raises(CorruptError, match="does not end"):
        other.publisher.replica.advance(frame)
    assert bits(other.publisher.replica) == bits(before)


def test_a_replay_that_saves_next_to_nothing_is_not_made() -> None:
    """Single deltas are in memory once for all nodes; a replay is once for each version that nodes missed it from."""
    n = 40_000
    arrays, rng = {"w": np.zeros(n, np.float32)}, np.random.default_rng(0)
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    publisher.history = History(1 << 22)
    for compressor, kinds in ((fedcomp.dense(), [Kind.DELTA] * 4), (fedcomp.eden(bits=0.01), [Kind.REPLAY])):
        first = publisher.replica.place
        for _ in range(4):
            publisher.publish(rng.standard_normal(n, np.float32), b"", compressor, seed=0)
        assert [parse_single_frame(data).kind for data in publisher.route(*first).frames] == kinds


def test_a_method_off_the_grid_gets_on_it_by_no_chance() -> None:
    """Zeros, and multiples of 2^-24 that are no powers of two, begin no origin."""
    publisher = Publisher.begin(start())
    publisher.history = History(1 << 20)
    changes = [
        np.full(N, 0.1, np.float32),
        np.zeros(N, np.float32),
        np.full(N, 0.75, np.float32),
        np.full(N, 0.1, np.float32),
    ]
    for change in changes:
        publisher.publish(change, publisher.replica.exact, fedcomp.topk(density=1.0), seed=0)
    assert [frame.flags & FLAG_GRID for frame in publisher.history.frames()] == [0] * 4


def test_messages_to_nodes_that_missed_the_same_share_one_replay() -> None:
    log, held = followed(15)
    one, two = (log.publisher.route(*held[3].place).frames for _ in range(2))
    assert one[0] is two[0]


def test_nodes_that_were_away_for_different_times_share_the_decoded_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    log, held = followed(15)
    computed: list[int] = []
    of = DeltaStep.of

    def count(replica: Replica, frame: Frame) -> DeltaStep:
        computed.append(frame.version)
        return of(replica, frame)

    monkeypatch.setattr(DeltaStep, "of", count)
    cache = DecodeCache()
    for since in (3, 5, 11):
        (frame,) = route(log, held[since])
        assert bits(held[since].advance(frame, cache)) == bits(log.publisher.replica)
    assert computed == list(range(4, 16))


# ---- what a receiver refuses -----------------------------------------------------------------------------------------


def held() -> tuple[Replica, Frame]:
    """Return a replica on the grid, some steps from its origin, and a replay of three versions from there."""
    log = Log()
    for _ in range(5):
        log.publish()
    replica = owned(log.publisher.replica)
    log.compressor = EDEN
    for _ in range(3):
        log.publish()
    (frame,) = map(parse_single_frame, log.publisher.route(*replica.place).frames)
    assert frame.flags & FLAG_EXACT
    return replica, frame


def test_the_undamaged_replay_is_followed_and_ends_the_origin() -> None:
    replica, frame = held()
    after = replica.advance(frame)
    assert (after.version, after.exact, after.origin) == (8, exact(7), None)


def bodies_of(frame: Frame) -> list[tuple[int, bytes]]:
    return [body for body, _ in read_bodies(frame.payload, 3)]


def no_bodies(frame: Frame) -> dict[str, Any]:
    """Other exact tensors under the same version."""
    mark = held()[0].fingerprint - exact_part(exact(0)) + exact_part(exact(7)) & MODULUS_MASK
    return {"version": 5, "after": mark, "payload": exact(7)}


def two_bodies(frame: Frame) -> dict[str, Any]:
    return {"payload": join_bodies(bodies_of(frame)[:2])}


def unknown_codec(frame: Frame) -> dict[str, Any]:
    return {"payload": join_bodies([*bodies_of(frame)[:2], (127, b"")]) + exact(7)}


def cut_body(frame: Frame) -> dict[str, Any]:
    (one, two, (codec, body)) = bodies_of(frame)
    return {"payload": join_bodies([one, two, (codec, body[:-1])]) + exact(7)}


def infinity(frame: Frame) -> dict[str, Any]:
    most = np.full(N, np.finfo(np.float32).max, "<f4").tobytes()
    return {"payload": join_bodies([(1, most)] * 3) + exact(7)}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda frame: {"after": 1}, CorruptError, "does not end"),
        (lambda frame: {"before": 1}, VersionError, "a replay from version 5"),
        (lambda frame: {"base_version": 6}, VersionError, "a replay from version 6"),
        (lambda frame: {"base_version": 4}, TruncatedError, "n: 0 bytes are left"),
        (lambda frame: {"version": 9}, TruncatedError, "n: 0 bytes are left"),
        (lambda frame: {"version": 7}, CorruptError, "the exact tensors need 8"),
        (lambda frame: {"version": 5}, CorruptError, "the exact tensors need 8"),
        (lambda frame: {"version": 5, "flags": 0, "payload": b""}, CorruptError, "does not end"),
        (lambda frame: {"payload": frame.payload + b"\0"}, CorruptError, "9 bytes behind the last delta"),
        (lambda frame: {"codec": 8}, CorruptError, "codec 8; 0 is needed"),
        (lambda frame: {"flags": 0}, CorruptError, "8 bytes behind the last delta"),
        (no_bodies, CorruptError, "does not end"),
        (two_bodies, TruncatedError, "codec of a replayed delta"),
        (unknown_codec, FedcompError, "codec 127"),
        (cut_body, TruncatedError, "bytes are left"),
        (infinity, CorruptError, "beyond float32"),
    ],
)
def test_a_replay_that_contradicts_itself_is_refused_and_the_replica_unchanged(
    change: Callable[[Frame], dict[str, Any]], error: type[Exception], text: str
) -> None:
    replica, frame = held()
    before = owned(replica)
    with pytest.raises(error, match=text):
        replica.advance(replace(frame, **change(frame)))
    assert bits(replica) == bits(before)
    assert replica.origin is not None
    assert before.origin is not None
    assert replica.origin.counts.tobytes() == before.origin.counts.tobytes()


def test_a_replay_that_claims_many_tiny_deltas_takes_no_memory_for_them() -> None:
    replica, frame = held()
    many = replace(frame, version=2**31, payload=bytes(200_000))
    tracemalloc.start()
    with pytest.raises(FedcompError):
        replica.advance(many)
    with pytest.raises(FedcompError):
        replica.advance(replace(many, version=5 + 100_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_replay_to_an_older_version_is_passed_over() -> None:
    replica, frame = held()
    after = owned(replica).advance(frame)
    older = replace(frame, version=7)
    assert apply_frame(after, older) is after
