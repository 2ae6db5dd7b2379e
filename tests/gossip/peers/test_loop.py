"""The loop of a node over links that do what a test says, and the digest by which nodes of one training know each other."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import numpy as np
import pytest

from fedcomp.gossip import parse_method, parse_topology
from fedcomp.gossip.peers import RefusedError, read_settings
from fedcomp.gossip.peers.claims import Claim
from fedcomp.gossip.peers.links import PeerLink, UnreachableError
from fedcomp.gossip.peers.loop import RoundLoop, training_of
from fedcomp.gossip.peers.peer import Fetched, Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.shared_tensors import SharedTensors
from tests.gossip.peers.toy import write_settings

N = 50
LONG_S = 20.0


@dataclass
class FakeLink:
    """A neighbour that answers with `fetched`, or is gone if that is None; it notes how patient the calls are."""

    fetched: Fetched | None = None
    is_used: bool = False
    refuses: bool = False
    patience: list[bool] = field(default_factory=list[bool])

    def hello(self, round_number: int, *, patient: bool = False, brief: bool = False) -> tuple[int, int]:
        self.patience.append(patient)
        if self.refuses:
            raise RefusedError("another graph")
        if self.fetched is None:
            raise UnreachableError("gone")
        return self.fetched.round, self.fetched.last_used

    def fetch(self, round_number: int, place: tuple[int, int], *, patient: bool) -> Fetched:
        self.patience.append(patient)
        if self.fetched is None:
            raise UnreachableError("gone")
        return self.fetched

    def deliver(self, round_number: int, frames: bytes) -> bool:
        if self.fetched is None:
            raise UnreachableError("gone")
        return self.is_used


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask soon whether a neighbor is present."""
    monkeypatch.setattr("fedcomp.gossip.peers.loop.WATCH_S", 0.1)


@pytest.fixture
def calls() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def node(folder: Path, number: int, num_nodes: int = 2) -> Peer:
    """Return a node of a ring, which has published in round 1."""
    tensors, topology = SharedTensors.of({"w": np.zeros(N, np.float32)}), parse_topology("ring()", num_nodes)
    method = parse_method("choco(dense(), step_size=1.0)")
    state = PeerState(method.start(tensors.layout, np.zeros(N, np.float32), topology.weights(number)), {})
    peer = Peer(number, state, tensors, seed=0, path=folder / f"{number}", training=7)
    peer.begin(1)
    peer.publish({"w": np.full(N, number + 1, np.float32)}, {})
    return peer


def rounds(peer: Peer, link: FakeLink, calls: ThreadPoolExecutor) -> RoundLoop:
    return RoundLoop(peer, {1 - peer.number: cast("PeerLink", link)}, calls, LONG_S)


def test_frames_that_cannot_be_followed_cost_the_edge_of_the_round(
    tmp_path: Path, calls: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    peer = node(tmp_path, 1)
    assert rounds(peer, FakeLink(Fetched(1, b"FCMP" + bytes(90))), calls).exchange() == []
    assert "the message of node 0 cannot be followed" in caplog.text
    assert peer.model["w"].tolist() == [2] * N


def test_a_higher_neighbor_that_is_gone_is_waited_for_once(tmp_path: Path, calls: ThreadPoolExecutor) -> None:
    """The watch ends the wait, long before the bound of the wait for one that is there; the next round asks at once."""
    peer, link = node(tmp_path, 0), FakeLink()
    driver, begin = rounds(peer, link, calls), time.monotonic()
    assert driver.exchange() == []
    assert driver.away == {1}
    assert link.patience == [True]
    peer.begin(2)
    peer.publish(peer.model, {})
    assert driver.exchange() == []
    assert link.patience == [True, False]
    assert time.monotonic() - begin < LONG_S / 2


def test_a_lower_neighbor_that_is_gone_is_asked_once_in_each_later_round(
    tmp_path: Path, calls: ThreadPoolExecutor
) -> None:
    peer, link = node(tmp_path, 1), FakeLink()
    driver = rounds(peer, link, calls)
    assert driver.exchange() == []
    peer.begin(2)
    peer.publish(peer.model, {})
    link.fetched = Fetched(9)
    assert driver.exchange() == []
    assert link.patience == [True, False]
    assert driver.away == set(), "it is back"
    assert peer.claims[0].round == 9


def test_after_the_last_round_neighbors_in_doubt_are_waited_for_and_others_are_not(
    tmp_path: Path, calls: ThreadPoolExecutor
) -> None:
    peer, other = node(tmp_path, 1), node(tmp_path, 0)
    answer = other.fetch(1, 1, peer.place_of(0), lambda: True)
    frames = peer.take(0, answer)
    assert frames
    link = FakeLink(Fetched(1, last_used=0))
    rounds(peer, link, calls).finish()
    peer.begin_deliveries([0])
    peer.mix()
    rounds(peer, link, calls).finish()
    assert link.patience == [False, True]
    assert not peer.state.doubts
    assert peer.model["w"].tolist() == [2] * N, "the other end did not use the edge"


def test_neighbors_that_have_ended_before_are_no_warnings(
    tmp_path: Path, calls: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    rounds(node(tmp_path, 1), FakeLink(), calls).finish()
    assert not caplog.records
    peer, other = node(tmp_path, 1), node(tmp_path, 0)
    assert peer.take(0, other.fetch(1, 1, peer.place_of(0), lambda: True))
    peer.begin_deliveries([0])
    peer.mix()
    rounds(peer, FakeLink(), calls).finish()
    assert [record.getMessage() for record in caplog.records] == ["node 0: gone"], "one whose answer is needed"
    assert peer.state.doubts


def test_a_node_joins_its_neighbors_in_the_round_where_they_are(tmp_path: Path, calls: ThreadPoolExecutor) -> None:
    peer = node(tmp_path, 1)
    rounds(peer, FakeLink(), calls).join()
    assert peer.claims == {}
    rounds(peer, FakeLink(Fetched(12)), calls).join()
    assert peer.claims == {0: Claim(12, heard_in=1)}


def test_a_jump_is_logged_with_its_reason(
    tmp_path: Path, calls: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    peer = node(tmp_path, 1)
    driver = rounds(peer, FakeLink(Fetched(300)), calls)
    assert driver.exchange() == []
    assert driver.next_round(400) == 6
    assert caplog.messages[-1] == "node 0 in round 300: this node goes on in round 6, and does not train rounds 2 to 5"
    assert driver.next_round(2) == 2
    assert len(caplog.messages) == 1


def test_one_neighbor_that_refuses_a_node_costs_its_edge_and_most_of_them_end_it(
    tmp_path: Path, calls: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    links = {0: FakeLink(Fetched(1), refuses=True), 1: FakeLink(Fetched(1))}
    driver = RoundLoop(
        node(tmp_path, 2, 3), {each: cast("PeerLink", link) for each, link in links.items()}, calls, LONG_S
    )
    driver.join()
    driver.join()
    assert caplog.messages == ["node 0 refuses this node: another graph"], "once"
    links[1].refuses = True
    driver.has_mixed = True
    driver.join()
    driver.has_mixed = False
    with pytest.raises(RefusedError, match="another graph"):
        driver.join()


def test_a_neighbor_that_never_answers_holds_one_watch(tmp_path: Path, calls: ThreadPoolExecutor) -> None:
    answers = Event()

    class Silent(FakeLink):
        def hello(self, round_number: int, *, patient: bool = False, brief: bool = False) -> tuple[int, int]:
            self.patience.append(patient)
            assert answers.wait(LONG_S)
            raise UnreachableError("gone")

    peer, link = node(tmp_path, 0), Silent()
    driver = RoundLoop(peer, {1: cast("PeerLink", link)}, calls, timeout_s=0.5)
    for number in (2, 3):
        assert driver.exchange() == []
        peer.begin(number)
        peer.publish(peer.model, {})
    assert link.patience == [True]
    assert driver.away == {1}
    answers.set()
    assert driver.exchange() == []


def test_the_digest_of_a_training_follows_from_all_that_its_nodes_share(tmp_path: Path) -> None:
    settings = read_settings(write_settings(tmp_path, 0, [9100, 9101, 9102, 9103]))
    tensors = SharedTensors.of({"w": np.zeros(N, np.float32)})
    changed: list[dict[str, Any]] = [
        {"topology": parse_topology("complete()", 4)},
        {"topology": parse_topology("ring()", 5)},
        {"method": parse_method("choco(dense())")},
        {"seed": 1},
    ]
    digests = [training_of(replace(settings, **each), tensors, 3) for each in [{}, *changed]]
    digests.append(training_of(settings, tensors, 4))
    digests.append(training_of(settings, SharedTensors.of({"v": np.zeros(N, np.float32)}), 3))
    assert len(set(digests)) == len(digests)
    same: dict[str, Any] = {"number": 1, "listen": "127.0.0.1:9101", "state_dir": tmp_path, "rounds": 9}
    assert training_of(replace(settings, **same), tensors, 3) == digests[0]
