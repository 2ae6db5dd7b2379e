"""The server's books: history, roster, ledger."""

import pickle

import numpy as np
import pytest

import fedcomp
from fedcomp.errors import DivergedError
from fedcomp.sync.history import History
from fedcomp.sync.ledger import SERVER_NODE, Ledger
from fedcomp.sync.node_registry import UNKNOWN_VERSION, NodeRecord, NodeRegistry
from fedcomp.sync.publisher import Publisher
from fedcomp.sync.replica import apply_frame, from_key_frame, start_replica
from fedcomp.wire.frame import Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from fedcomp.wire.server_message import Ack


def _downlink(versions: int, density: float = 0.01, n: int = 3000) -> tuple[Publisher, list[NodeRecord]]:
    """Return a log of that many versions, and a standing at each."""
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal(n, np.float32)}
    downlink = Publisher.begin(start_replica(layout_of(arrays), arrays))
    standings = [NodeRecord(0, downlink.published.fingerprint)]
    for _ in range(versions):
        arrays = {"w": downlink.published.vector + rng.standard_normal(n, np.float32)}
        downlink.publish(arrays, fedcomp.stc(density=density), seed=0)
        standings.append(NodeRecord(downlink.published.version, downlink.published.fingerprint))
    return downlink, standings


def test_the_route_from_any_version_ends_in_the_published_bits() -> None:
    downlink, standings = _downlink(12)
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal(3000, np.float32)}
    for standing in standings:
        replica = start_replica(layout_of(arrays), arrays)
        for data in downlink.route(NodeRecord(0, replica.fingerprint)).frames:
            if replica.version == standing.version:
                break
            replica = apply_frame(replica, parse_single_frame(data))
        for data in downlink.route(standing).frames:
            replica = apply_frame(replica, parse_single_frame(data))
        np.testing.assert_array_equal(replica.vector, downlink.published.vector)
        assert replica.fingerprint == downlink.published.fingerprint


def test_catch_up_is_all_but_the_newest_delta() -> None:
    downlink, standings = _downlink(4)
    assert [len(downlink.route(s).frames) for s in standings] == [4, 3, 2, 1, 0]
    route = downlink.route(standings[1])
    assert route.catch_up_bytes == sum(map(len, route.frames[:-1]))
    assert downlink.route(standings[3]).catch_up_bytes == 0


def test_an_unknown_node_and_one_of_another_lineage_get_the_key_frame() -> None:
    downlink, standings = _downlink(3)
    for standing in (NodeRecord(), NodeRecord(2, standings[2].fingerprint ^ 1), NodeRecord(99, 5)):
        route = downlink.route(standing)
        (data,) = route.frames
        frame = parse_single_frame(data)
        assert frame.kind is Kind.KEY
        assert route.catch_up_bytes == len(data)
        np.testing.assert_array_equal(from_key_frame(frame).vector, downlink.published.vector)


def test_deltas_that_a_key_frame_undercuts_are_forgotten() -> None:
    downlink, standings = _downlink(60, density=0.2)
    frames = downlink.history.frames()
    assert sum(frame.size for frame in frames) <= downlink.published.key_frame().size
    assert 1 < len(frames) < 60
    for standing in standings:
        sent = sum(map(len, downlink.route(standing).frames))
        assert sent <= downlink.published.key_frame().size


def test_a_version_beyond_float32_is_the_servers_own_mistake_and_not_published() -> None:
    arrays = {"w": np.full(3, 2e38, np.float32)}
    downlink, stc = Publisher.begin(start_replica(layout_of(arrays), arrays)), fedcomp.stc(density=0.3)
    target = {"w": np.array([3e38, 2.9e38, 2.9e38], np.float32)}
    # The first entry alone is published; of the others 9e37 are kept back, and added once more.
    downlink.publish(target, stc, seed=0)
    with pytest.raises(DivergedError, match="version 2 cannot be published: a delta takes the model out of float32"):
        downlink.publish(target, stc, seed=0)
    assert downlink.published.version == 1
    assert len(downlink.history.frames()) == 1


def test_what_compression_keeps_back_is_published_later() -> None:
    arrays, stc = {"w": np.zeros(1000, np.float32)}, fedcomp.stc(density=0.05)
    downlink = Publisher.begin(start_replica(layout_of(arrays), arrays))
    target = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    downlink.publish({"w": target.copy()}, stc, seed=0)
    for _ in range(200):
        downlink.publish({"w": downlink.published.vector.copy()}, stc, seed=0)
    moved = downlink.published.vector + downlink.memory["residual"]
    np.testing.assert_allclose(moved, target, atol=1e-4)
    assert np.abs(downlink.memory["residual"]).max() < 0.2 * np.abs(target).max()


def test_the_history_of_nothing_has_no_route() -> None:
    assert History(100).route(0, 0) is None


def test_the_ledger_adds_up_by_round_by_node_and_in_all() -> None:
    ledger = Ledger()
    ledger.add(1, 7, uplink_bytes=10, dense_uplink_bytes=1000)
    ledger.add(1, 8, uplink_bytes=5, downlink_bytes=20, catch_up_bytes=15, dense_downlink_bytes=500)
    ledger.add(2, 7, uplink_bytes=1, encode_seconds=0.5)
    ledger.add(2, SERVER_NODE, encode_seconds=0.25)
    assert (ledger.uplink_bytes, ledger.downlink_bytes, ledger.catch_up_bytes) == (16, 20, 15)
    assert ledger.dense_bytes == 1500
    assert ledger.ratio == pytest.approx(1500 / 36)
    assert {number: part.uplink_bytes for number, part in ledger.by_round().items()} == {1: 15, 2: 1}
    assert {node: part.uplink_bytes for node, part in ledger.by_node().items()} == {7: 11, 8: 5, SERVER_NODE: 0}
    assert ledger.by_round_and_node()[2, 7].encode_seconds == 0.5
    again = Ledger.from_array(ledger.to_array())
    assert again.by_round_and_node() == ledger.by_round_and_node()
    assert again.total() == ledger.total()


def test_an_amount_that_the_ledger_does_not_know_is_an_error() -> None:
    with pytest.raises(AttributeError, match="bits"):
        Ledger().add(1, 1, bits=3)
    with pytest.raises(AttributeError, match="bits"):
        Ledger().bits  # noqa: B018


def test_the_roster_comes_back_as_it_was() -> None:
    registry = NodeRegistry()
    assert registry[3].version == UNKNOWN_VERSION
    registry[2**63 + 5] = NodeRecord(4, 2**64 - 1, 2**60, acked=Ack(2**60 - 1, 2**32 - 1))
    again = NodeRegistry.from_array(registry.to_array())
    assert again == registry


def test_a_ledger_can_be_pickled() -> None:
    ledger = Ledger()
    ledger.add(1, 2, uplink_bytes=3)
    again = pickle.loads(pickle.dumps(ledger))  # noqa: S301
    again.add(1, 4, uplink_bytes=5)
    assert {node: part.uplink_bytes for node, part in again.nodes_of_round(1).items()} == {2: 3, 4: 5}
