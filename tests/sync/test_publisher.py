"""The publisher: routes from every version, conservation of what compression leaves out, and updates accepted once."""

from dataclasses import replace

import numpy as np
import pytest

import fedcomp
from fedcomp.errors import CorruptError, DivergedError, NonFiniteError, StaleError, VersionError
from fedcomp.quantized import Steps
from fedcomp.sync import History, Publisher, Replica, Subscriber, apply_frame, from_key_frame, resync, start_replica
from fedcomp.sync.node_registry import UNKNOWN_VERSION, NodeRecord, NodeRegistry
from fedcomp.wire.frame import Frame, Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from fedcomp.wire.server_message import Ack, parse_server_message

Place = tuple[int, int]
DENSE = fedcomp.dense()


def start(n: int = 3000) -> Replica:
    arrays = {"w": np.random.default_rng(0).standard_normal(n, np.float32)}
    return start_replica(layout_of(arrays), arrays)


def published(versions: int, density: float = 0.01) -> tuple[Publisher, list[Place]]:
    """Return a publisher of that many versions, and number and fingerprint of each."""
    rng = np.random.default_rng(1)
    publisher = Publisher.begin(start())
    places = [(0, publisher.replica.fingerprint)]
    for _ in range(versions):
        publisher.publish(rng.standard_normal(3000, np.float32), b"", fedcomp.stc(density=density), seed=0)
        places.append((publisher.replica.version, publisher.replica.fingerprint))
    return publisher, places


def test_the_route_from_any_version_ends_in_the_published_bits() -> None:
    publisher, places = published(12)
    for version, fingerprint in places:
        replica = start()
        for data in publisher.route(*places[0]).frames:
            if replica.version == version:
                break
            replica = apply_frame(replica, parse_single_frame(data))
        for data in publisher.route(version, fingerprint).frames:
            replica = apply_frame(replica, parse_single_frame(data))
        np.testing.assert_array_equal(replica.vector, publisher.replica.vector)
        assert replica.fingerprint == publisher.replica.fingerprint


def test_catch_up_is_what_a_route_takes_beyond_the_newest_delta() -> None:
    publisher, places = published(4)
    newest = publisher.history.frames()[-1].size
    for place in places[:4]:
        route = publisher.route(*place)
        assert route.catch_up_bytes == sum(map(len, route.frames)) - newest
    assert publisher.route(*places[1]).catch_up_bytes > 0
    assert publisher.route(*places[4]).frames == ()
    assert publisher.route(*places[3]).catch_up_bytes == 0


def test_an_unknown_node_gets_the_origin_and_a_jump() -> None:
    publisher, places = published(30, density=0.3)
    for place in ((99, 5), (30, publisher.replica.fingerprint ^ 1)):
        assert publisher.route(*place) == publisher.route(UNKNOWN_VERSION, 0), "of another training"
    route = publisher.route(UNKNOWN_VERSION, 0)
    key, jump = map(parse_single_frame, route.frames)
    assert (key.kind, jump.kind) == (Kind.KEY, Kind.JUMP)
    assert route.key
    assert route.catch_up_bytes == key.size + jump.size - publisher.history.frames()[-1].size
    assert from_key_frame(key).place == places[0]
    assert from_key_frame(key).advance(jump).place == publisher.replica.place


def test_a_node_whose_answer_was_lost_may_be_ahead_after_a_restart_too() -> None:
    publisher, places = published(30, density=0.3)
    publisher.nodes[1].version, publisher.nodes[1].fingerprint = places[20]
    bases = []
    for _ in range(3):  # nothing is unanswered; then the first message, whose answer is lost; then the second
        publisher.nodes = NodeRegistry.from_array(publisher.nodes.to_array())
        frames = list(map(parse_single_frame, publisher.message_to(1, str(DENSE), 0)[1].frames))
        bases.append([frame.base_version for frame in frames if frame.kind is Kind.JUMP])
    assert bases[0] == [20]
    assert [20] not in bases[1:]


def test_deltas_that_are_larger_than_a_key_frame_are_dropped() -> None:
    publisher, places = published(60, density=0.2)
    assert History(100).since(0, 0) == ()
    frames, key_size = publisher.history.frames(), publisher.replica.key_frame().size
    assert sum(frame.size for frame in frames) <= key_size
    assert 1 < len(frames) < 60
    assert all(sum(map(len, publisher.route(*place).frames)) <= key_size for place in places)


def test_the_changes_are_published_changes_plus_residual() -> None:
    rng = np.random.default_rng(2)
    publisher, before, total = Publisher.begin(start()), start().vector, np.zeros(3000)
    for version in range(50):
        change = rng.standard_normal(3000, np.float32) * np.float32(10.0 ** (version % 5 - 4))
        total += change
        publisher.publish(change, b"", fedcomp.stc(density=0.05), seed=0)
    moved = publisher.replica.vector.astype(np.float64) - before
    np.testing.assert_allclose(moved + publisher.memory["residual"], total, atol=1e-5)


@pytest.mark.parametrize(("downlink", "rest"), [("dense()", 1e-5), ("eden(bits=4)", 0.2)])
def test_a_compressor_without_a_memory_publishes_what_an_earlier_one_left_out(downlink: str, rest: float) -> None:
    rng = np.random.default_rng(3)
    publisher, before, total = Publisher.begin(start()), start().vector, np.zeros(3000)
    for text in (*["stc(density=0.05)"] * 9, downlink):
        change = rng.standard_normal(3000, np.float32)
        total += change
        publisher.publish(change, b"", fedcomp.parse(text), seed=0)
    moved = publisher.replica.vector.astype(np.float64) - before
    assert np.linalg.norm(moved - total) <= rest * np.linalg.norm(total)
    assert np.abs(publisher.memory.get("residual", 0)).max() < 1e-5, "what float32 rounds off"
    publisher.publish(np.zeros(3000, np.float32), b"", DENSE, seed=0)
    assert "residual" not in publisher.memory


def test_a_residual_stays_if_the_version_that_brings_it_cannot_be_published() -> None:
    arrays = {"w": np.full(3, 2e38, np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    publisher.publish(np.array([1e38, 9e37, 9e37], np.float32), b"", fedcomp.stc(density=0.3), seed=0)
    left = publisher.memory["residual"].copy()
    with pytest.raises(DivergedError, match="version 2"):
        publisher.publish(np.array([0, 9e37, 9e37], np.float32), b"", DENSE, seed=0)
    assert np.array_equal(publisher.memory["residual"], left)
    assert left.any()


def test_a_residual_and_a_change_beyond_float32_are_an_error_that_names_the_tensor() -> None:
    arrays = {"w": np.zeros(3, np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    publisher.publish(np.array([3e38, 2e38, 2e38], np.float32), b"", fedcomp.stc(density=0.3), seed=0)
    for text in ("dense()", "eden(bits=4)"):
        with pytest.raises(NonFiniteError, match="'w'"):
            publisher.publish(np.array([0, 3e38, 0], np.float32), b"", fedcomp.parse(text), seed=0)


def test_a_residual_that_must_not_be_sent_is_forgotten_with_any_compressor() -> None:
    """A strategy that does not start from the published model brings it by itself."""
    publisher, _ = published(3)
    publisher.forget(DENSE)
    before = publisher.replica.vector.copy()
    publisher.publish(np.zeros(3000, np.float32), b"", DENSE, seed=0)
    np.testing.assert_allclose(publisher.replica.vector, before, atol=1e-6)


def test_a_version_beyond_float32_is_not_published() -> None:
    arrays = {"w": np.full(3, 2e38, np.float32)}
    publisher, stc = Publisher.begin(start_replica(layout_of(arrays), arrays)), fedcomp.stc(density=0.3)
    # The first entry alone is published; 9e37 of the others stay in the memory, and are added to the second change.
    publisher.publish(np.array([1e38, 9e37, 9e37], np.float32), b"", stc, seed=0)
    with pytest.raises(DivergedError, match="version 2"):
        publisher.publish(np.array([0, 9e37, 9e37], np.float32), b"", stc, seed=0)
    assert publisher.replica.version == 1
    assert len(publisher.history.frames()) == 1


def test_a_change_that_is_not_finite_is_an_error_that_names_the_tensor() -> None:
    arrays = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    with pytest.raises(NonFiniteError, match="entry 3 .*'b'.* nan"):
        publisher.publish(np.array([0, 0, 0, np.nan], np.float32), b"", fedcomp.stc(), seed=0)
    assert publisher.replica.version == 0


def answer(publisher: Publisher, subscriber: Subscriber, node: int = 1) -> bytes:
    """Bring `subscriber` to the newest version, and return the update that it answers with."""
    message, frames = parse_server_message(publisher.message_to(node, str(DENSE), seed=0)[0].to_bytes())
    subscriber.settle(message.acked, node)
    subscriber.follow(message, frames)
    return subscriber.update(
        subscriber.learned({"w": subscriber.held.vector + 1}), message, identity=node, decode_seconds=0
    )


def test_an_update_is_accepted_once_and_acknowledged_by_the_next_message() -> None:
    publisher, subscriber = Publisher.begin(start(), training_id=5), Subscriber()
    data = answer(publisher, subscriber)
    reply = publisher.parse_reply(1, data)
    assert reply.update is not None
    np.testing.assert_allclose(reply.update.change.dense(), 1, rtol=1e-6)
    publisher.confirm(1, reply)
    with pytest.raises(StaleError, match="before"):
        publisher.parse_reply(1, data)
    assert publisher.message_to(1, "dense()", 0)[0].acked == Ack()
    publisher.acknowledge(1, reply, summed=False)
    assert publisher.message_to(1, "dense()", 0)[0].acked == reply.ack


def test_a_late_update_tells_how_many_versions_it_is_late_and_one_from_another_version_is_refused() -> None:
    publisher, subscriber = Publisher.begin(start()), Subscriber()
    data = answer(publisher, subscriber)
    for _ in range(3):
        publisher.publish(np.ones(3000, np.float32), b"", DENSE, seed=0)
    reply = publisher.parse_reply(1, data)
    assert reply.staleness == 3
    assert reply.update is not None
    np.testing.assert_allclose(reply.update.change.dense(), 1, rtol=1e-6)
    frame = parse_single_frame(data)
    for other in (replace(frame, version=3, base_version=3), replace(frame, before=frame.before ^ 1)):
        with pytest.raises(VersionError, match=f"version {other.version} .*; version 0 .* was sent"):
            publisher.parse_reply(1, other.to_bytes())


def test_every_message_names_the_training_and_a_node_that_cannot_follow_gets_a_key_frame_next() -> None:
    publisher, subscriber = Publisher.begin(start(), training_id=5), Subscriber()
    assert publisher.message_to(1, "dense()", 0)[0].training_id == 5
    publisher.confirm(1, publisher.parse_reply(1, answer(publisher, subscriber)))
    message, route = publisher.message_to(1, "dense()", 0)
    assert (message.training_id, route.key) == (5, False)
    with pytest.raises(CorruptError):
        publisher.parse_reply(1, resync(message.number))
    message, route = publisher.message_to(1, "dense()", 0)
    assert (message.training_id, route.key) == (5, True)


@pytest.mark.parametrize(("downlink", "moved"), [("dense()", 0.0), ("topk(density=1.0)", 40 * 2.0**-26)])
def test_only_a_downlink_with_a_residual_keeps_changes_below_the_last_bit_of_a_weight(
    downlink: str, moved: float
) -> None:
    """The float32 weight 0.75 moves in steps of 2^-24."""
    arrays = {"w": np.full(50, 0.75, np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    for _ in range(40):
        publisher.publish(np.full(50, 2.0**-26, np.float32), b"", fedcomp.parse(downlink), 0)
    assert np.array_equal(publisher.replica.vector, np.full(50, 0.75 + moved, np.float32))


def test_the_registry_comes_back_from_its_rows() -> None:
    registry = NodeRegistry()
    assert registry[3].version == UNKNOWN_VERSION
    registry[2**63 + 5] = NodeRecord(4, 2**64 - 1, 2**60, acked=Ack(2**60 - 1, 2**32 - 1), summed=True)
    found = NodeRegistry.from_array(registry.to_array())
    assert [record.number for record in found.values()] == [0, 0], "no answer to a message from before counts"
    assert [record.may_be_ahead for record in found.values()] == [False, True]
    registry[2**63 + 5].number, registry[2**63 + 5].answered = 0, -1
    assert found == registry


def test_a_returned_share_is_in_the_rows_and_one_out_of_range_is_refused() -> None:
    registry = NodeRegistry()
    registry[1].returned, registry[1].acked = 1 - 2**-0.5, Ack(7, 5)
    rows = registry.to_array()
    assert NodeRegistry.from_array(rows) == registry
    for damaged in (1.0, -0.5, float("nan")):
        rows["returned"] = damaged
        with pytest.raises(CorruptError, match="returned"):
            NodeRegistry.from_array(rows)


def test_no_jump_is_made_from_the_origin_where_the_last_one_was_larger_than_the_deltas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher, places = published(30)
    jumps: list[Place] = []
    make = Replica.jump_frame

    def jump_frame(replica: Replica, start: Place, steps: Steps, *, exact: bool) -> Frame:
        jumps.append(start)
        return make(replica, start, steps, exact=exact)

    monkeypatch.setattr(Replica, "jump_frame", jump_frame)
    publisher.route(*places[0])
    assert jumps == [places[0]]
    publisher.publish(np.ones(3000, np.float32), b"", fedcomp.stc(density=0.01), seed=0)
    assert len(publisher.route(*places[29], certain=False).frames) == 2
    assert jumps == [places[0]]


def test_the_first_model_of_a_route_takes_the_fewest_bytes() -> None:
    arrays = {"w": np.zeros(3000, np.float32)}
    route = Publisher.begin(start_replica(layout_of(arrays), arrays)).route(UNKNOWN_VERSION, 0)
    assert route.key
    assert len(route.frames[0]) < 300
