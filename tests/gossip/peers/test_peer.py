"""The agreement of both ends of an edge: by hand, then under random loss, delay, repetition and crashes."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import from_json, read_archive, to_json, write_archive
from fedcomp.errors import CorruptError, FedcompError, StaleError
from fedcomp.gossip import Choco, DeepSqueeze, parse_method, parse_topology
from fedcomp.gossip.choco import ChocoNode
from fedcomp.gossip.peers.peer import Fetched, Peer, PeerStoppedError
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.shared_tensors import SharedTensors

N = 200
LONG_S = 60.0
METHODS = ["choco(topk(density=0.2, feedback=False), step_size=0.5)", "deep_squeeze(topk(density=0.2), step_size=0.5)"]


def alive() -> bool:
    return True


def never() -> bool:
    return False


@dataclass
class Graph:
    """Nodes without a network, each with its state file, whose messages this test carries."""

    folder: Path
    method: Choco | DeepSqueeze
    num_nodes: int
    calls: ThreadPoolExecutor
    peers: list[Peer] = field(default_factory=list[Peer])
    published: NDArray[np.float64] = field(default_factory=lambda: np.zeros(N))
    """The sum of what training changed in all messages that were published."""

    def __post_init__(self) -> None:
        self.topology = parse_topology("ring()", self.num_nodes)
        model = {"w": np.zeros(N, np.float32)}
        self.tensors = SharedTensors.of(model)
        for number in range(self.num_nodes):
            node = self.method.start(self.tensors.layout, np.zeros(N, np.float32), self.topology.weights(number))
            self.peers.append(self._peer(number, PeerState(node, {})))

    def _peer(self, number: int, state: PeerState) -> Peer:
        return Peer(number, state, self.tensors, seed=0, path=self.folder / f"{number}", training=7)

    def restart(self, number: int) -> None:
        """Kill a node, and start it again from its file."""
        self.peers[number].stop()
        path = self.folder / f"{number}"
        state = PeerState.load(path, 7, self.tensors, self.method, self.topology, number)
        self.peers[number] = self._peer(number, state)

    def publish(self, number: int, round_number: int, step: NDArray[np.float32]) -> None:
        peer = self.peers[number]
        peer.begin(round_number)
        peer.publish({"w": peer.model["w"] + step}, {})
        self.published += step.astype(np.float64)

    def fetch(self, number: int, lower: int) -> Fetched:
        peer = self.peers[number]
        return self.peers[lower].fetch(number, peer.round, peer.place_of(lower), alive)

    def deliver(self, number: int, lower: int, frames: bytes) -> Future[bool]:
        """Deliver, and return once it has arrived at a node that has not closed the round."""
        to, round_number = self.peers[lower], self.peers[number].round
        answer = self.calls.submit(to.deliver, number, round_number, frames, alive)
        assert not to.state.open or not to.missing([number], LONG_S)
        return answer

    def total(self) -> NDArray[np.float64]:
        return np.asarray(np.sum([peer.state.node.model for peer in self.peers], axis=0, dtype=np.float64))


@pytest.fixture
def calls() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def pair(tmp_path: Path, calls: ThreadPoolExecutor) -> Graph:
    """Two nodes that sent dense messages: node 0 has trained to 4, node 1 to 0, and 1 has fetched from 0."""
    graph = Graph(tmp_path, Choco(parse_method("choco(dense())").compressor, 1.0), 2, calls)
    graph.publish(0, 1, np.full(N, 4, np.float32))
    graph.publish(1, 1, np.zeros(N, np.float32))
    return graph


def delivered(pair: Graph) -> tuple[bytes, Future[bool]]:
    """Let node 1 fetch from node 0 and deliver to it; return its frames and the answer, which comes once 0 has decided."""
    frames = pair.peers[1].take(0, pair.fetch(1, 0))
    assert frames
    pair.peers[1].begin_deliveries([0])
    return frames, pair.deliver(1, 0, frames)


def models(graph: Graph) -> list[float]:
    return [float(peer.model["w"][0]) for peer in graph.peers]


def test_an_exchange_moves_both_ends_by_the_same(pair: Graph) -> None:
    """The weight of two nodes is 1/2: 4 and 0 become 2 and 2."""
    low, high = pair.peers
    _, answer = delivered(pair)
    assert low.decide() == {1}
    high.settle(0, used=answer.result(LONG_S))
    assert (low.mix(), high.mix()) == ([1], [0])
    assert models(pair) == [2, 2]
    assert high.state.doubts == {}


def test_a_lost_answer_is_settled_when_the_lower_node_is_heard_again(pair: Graph) -> None:
    low, high = pair.peers
    high.begin_deliveries({0: (frames := high.take(0, pair.fetch(1, 0)))})
    assert frames
    pair.deliver(1, 0, frames)
    low.decide()
    low.mix()
    high.mix()  # without an answer
    assert models(pair) == [2, 0]
    for number in (0, 1):
        pair.publish(number, 2, np.zeros(N, np.float32))
    high.take(0, pair.fetch(1, 0))
    low.decide()
    assert (low.mix(), high.mix()) == ([], [])
    assert models(pair) == [2, 2], "the edge of round 1 counts in round 2"
    assert high.state.doubts == {}


def test_after_the_last_round_a_doubt_is_settled_too(pair: Graph) -> None:
    low, high = pair.peers
    delivered(pair)
    low.decide()
    low.mix()
    high.mix()
    pair.restart(1)
    assert models(pair) == [2, 0]
    assert low.hello(1, 1, alive) == (1, 1)
    pair.peers[1].finish({0: 1})
    pair.restart(1)
    assert models(pair) == [2, 2]


def test_a_lower_neighbor_is_asked_and_does_not_ask(pair: Graph) -> None:
    high, frames = pair.peers[1], b"".join(pair.peers[0].state.node.frames_from(pair.peers[1].place_of(0)))
    with pytest.raises(CorruptError, match="node 0 has the lower number"):
        high.deliver(0, 1, frames, never)
    with pytest.raises(CorruptError, match="node 0 has the lower number"):
        high.fetch(0, 1, (0, 0), never)
    assert high.decide() == set()


def test_a_late_delivery_is_refused_and_a_repeated_one_gets_the_same_answer(pair: Graph) -> None:
    low, high = pair.peers
    frames, first = delivered(pair)
    again = pair.calls.submit(low.deliver, 1, 1, frames, alive)
    low.decide()
    assert first.result(LONG_S)
    assert again.result(LONG_S)
    assert low.deliver(1, 1, frames, alive), "after the decision"
    low.mix()
    assert low.deliver(1, 1, frames, alive), "after the round"
    high.settle(0, used=True)
    high.mix()
    for number in (0, 1):
        pair.publish(number, 2, np.ones(N, np.float32))
    late = high.take(0, pair.fetch(1, 0))
    assert late
    high.begin_deliveries([0])
    assert low.decide() == set()
    assert not low.deliver(1, 2, late, alive)
    high.settle(0, used=False)
    low.mix()
    high.mix()
    assert models(pair) == [3, 3]


def test_a_promise_holds_for_a_node_that_is_killed_after_it(pair: Graph) -> None:
    low, high = pair.peers
    _, answer = delivered(pair)
    low.decide()
    high.settle(0, used=answer.result(LONG_S))
    high.mix()
    pair.restart(0)
    assert models(pair) == [2, 2]


def test_a_node_that_is_behind_learns_the_round_and_joins_there(pair: Graph) -> None:
    low, high = pair.peers
    low.decide()
    low.mix()
    low.begin(5)
    assert pair.fetch(1, 0) == Fetched(5)
    assert high.take(0, pair.fetch(1, 0)) is None
    assert high.claims[0].round == 5


def test_a_node_in_a_later_round_says_so_while_it_trains(pair: Graph) -> None:
    low = pair.peers[0]
    low.decide()
    low.mix()
    low.begin(5)
    assert low.fetch(1, 3, (0, 0), never) == Fetched(5), "without a wait for its message"


def test_who_asks_for_a_later_round_tells_a_node_how_far_others_are(pair: Graph) -> None:
    low = pair.peers[0]
    with pytest.raises(StaleError, match="the caller is gone"):
        low.fetch(1, 9, (0, 0), never)
    assert low.claims[1].round == 9


def test_a_hello_waits_until_the_round_is_closed(pair: Graph) -> None:
    """It is decided before, but what was in the round counts from the end on."""
    low, waits = pair.peers[0], Event()

    def alive_and_waiting() -> bool:
        waits.set()
        return True

    answer = pair.calls.submit(low.hello, 1, 1, alive_and_waiting)
    assert waits.wait(LONG_S)
    low.decide()
    with pytest.raises(StaleError):
        low.hello(1, 1, never)
    low.mix()
    assert answer.result(LONG_S) == (1, 0)


def test_a_repeated_delivery_of_an_earlier_round_is_none_of_this_round(pair: Graph) -> None:
    low, high = pair.peers
    frames, answer = delivered(pair)
    low.decide()
    high.settle(0, used=answer.result(LONG_S))
    low.mix()
    pair.publish(0, 2, np.zeros(N, np.float32))
    assert low.deliver(1, 1, frames, alive), "the same answer"
    assert low.missing([1], 0) == [1]
    assert low.decide() == set()


def test_a_neighbor_that_was_given_up_in_a_round_stays_so_when_it_is_heard(pair: Graph) -> None:
    low = pair.peers[0]
    assert low.missing([1], 0) == [1]
    low.give_up(1, 1)
    low.hello(1, 0, alive)
    assert low.missing([1], 0) == []


def test_a_node_that_ends_answers_nobody(pair: Graph) -> None:
    low = pair.peers[0]
    waiting = pair.calls.submit(low.fetch, 1, 9, (0, 0), alive)
    low.stop()
    with pytest.raises(PeerStoppedError):
        waiting.result(LONG_S)


def test_a_file_that_is_damaged_or_of_another_training_is_refused(pair: Graph) -> None:
    path = pair.folder / "0"
    load = (pair.tensors, pair.method, pair.topology, 0)
    with pytest.raises(CorruptError, match="another graph, method, seed or first model"):
        PeerState.load(path, 8, *load)
    with pytest.raises(CorruptError, match="it is of node 0; the state of node 1 is needed"):
        PeerState.load(path, 7, pair.tensors, pair.method, pair.topology, 1)
    other = parse_method("deep_squeeze(stc())")
    with pytest.raises(CorruptError, match="is not the state of this node"):
        PeerState.load(path, 7, pair.tensors, other, pair.topology, 0)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptError, match="damaged"):
        PeerState.load(path, 7, *load)


def test_a_node_that_has_not_begun_a_round_goes_on_from_its_file(tmp_path: Path, calls: ThreadPoolExecutor) -> None:
    graph = Graph(tmp_path, parse_method("choco(dense(), step_size=1.0)"), 2, calls)
    path = tmp_path / "0"
    graph.peers[0].state.save(path, 7, 0)
    assert PeerState.load(path, 7, graph.tensors, graph.method, graph.topology, 0).round == 0


@pytest.mark.parametrize("name", ["node/model", "node/trained"])
def test_a_file_with_a_model_that_is_not_finite_is_refused(pair: Graph, name: str) -> None:
    path = pair.folder / "0"
    arrays = read_archive(path)
    write_archive(path, arrays | {name: np.full(N, np.nan, np.float32)})
    with pytest.raises(CorruptError, match="a stored model with NaN or infinity"):
        PeerState.load(path, 7, pair.tensors, pair.method, pair.topology, 0)


@pytest.mark.parametrize("change", ["format", "doubt"])
def test_a_file_of_another_format_or_with_a_doubt_of_another_model_is_refused(pair: Graph, change: str) -> None:
    high, path = pair.peers[1], pair.folder / "1"
    assert high.take(0, pair.fetch(1, 0))
    high.begin_deliveries([0])
    arrays = read_archive(path)
    if change == "format":
        arrays["plain"] = to_json(from_json(arrays["plain"]) | {"format": 2})
    else:
        arrays["doubt/0"] = np.zeros(N + 1, arrays["doubt/0"].dtype)
    write_archive(path, arrays)
    found = "format 2; this version reads format 1" if change == "format" else "a stored difference of another model"
    with pytest.raises(CorruptError, match=found):
        PeerState.load(path, 7, pair.tensors, pair.method, pair.topology, 1)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"round": -1}, "the round -1"),
        ({"round": "one"}, "the round 'one'"),
        ({"last_used": [[9, 1]]}, "a round of node 9, which is no neighbour"),
        ({"last_used": [[1, None]]}, "the round None"),
        ({"doubts": [[0, 1, 2]]}, "is not the state of this node"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(pair: Graph, changes: dict[str, Any], found: str) -> None:
    path = pair.folder / "0"
    arrays = read_archive(path)
    write_archive(path, arrays | {"plain": to_json(from_json(arrays["plain"]) | changes)})
    with pytest.raises(CorruptError, match=found) as error:
        PeerState.load(path, 7, pair.tensors, pair.method, pair.topology, 0)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", METHODS)
def test_a_restored_node_goes_on_in_the_same_bits(tmp_path: Path, calls: ThreadPoolExecutor, text: str) -> None:
    graphs = [Graph(tmp_path / name, parse_method(text), 3, calls) for name in ("whole", "restarted")]
    rng = np.random.default_rng(1)
    for turn in range(1, 7):
        steps = rng.standard_normal((3, N)).astype(np.float32)
        for graph in graphs:
            run_round(graph, turn, steps)
        for number in range(3):
            graphs[1].peers[number].save()
            graphs[1].restart(number)
    for one, other in zip(graphs[0].peers, graphs[1].peers, strict=True):
        assert one.model["w"].tobytes() == other.model["w"].tobytes()


def run_round(
    graph: Graph,
    turn: int,
    steps: NDArray[np.float32],
    fails: Callable[[], bool] = never,
    away: frozenset[int] = frozenset(),
) -> None:
    """Let all nodes but those `away` exchange; each message is lost, and each node killed, where `fails` says so."""
    here = [number for number in range(graph.num_nodes) if number not in away]
    for number in here:
        graph.publish(number, turn, steps[number])
    answers: dict[tuple[int, int], Future[bool]] = {}
    for number in here:
        lower = [each for each in graph.topology.neighbors[number] if each < number and each in here]
        frames = {each: graph.peers[number].take(each, graph.fetch(number, each)) for each in lower if not fails()}
        graph.peers[number].begin_deliveries(frames)
        for each, data in frames.items():
            if not fails() and data:
                answers[number, each] = graph.deliver(number, each, data)
        if fails():
            graph.restart(number)  # its messages are under way
    for number in here:
        graph.peers[number].decide()
        if fails():
            graph.restart(number)
    for (number, each), answer in answers.items():
        try:
            used = answer.result(LONG_S)
        except PeerStoppedError:
            continue
        if not fails() and each in graph.peers[number].state.doubts and graph.peers[number].state.open:
            graph.peers[number].settle(each, used=used)
    for number in here:
        if graph.peers[number].state.open:
            graph.peers[number].mix()


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_faults_of_all_kinds_leave_the_mean_as_it_is(
    tmp_path: Path, calls: ThreadPoolExecutor, text: str, seed: int
) -> None:
    graph, rng = Graph(tmp_path, parse_method(text), 5, calls), np.random.default_rng(seed)
    doubtful = 0
    for turn in range(1, 25):
        away = frozenset(rng.choice(5, rng.integers(0, 3), replace=False).tolist())
        run_round(graph, turn, rng.standard_normal((5, N)).astype(np.float32), lambda: rng.random() < 0.15, away)
        doubtful += sum(len(peer.state.doubts) for peer in graph.peers)
    assert doubtful, "the faults are there"
    run_round(graph, 25, np.zeros((5, N), np.float32))
    assert not any(peer.state.doubts for peer in graph.peers)
    np.testing.assert_allclose(graph.total(), graph.published, atol=2e-4)
    for number, peer in enumerate(graph.peers):
        for other in graph.topology.neighbors[number]:
            here, there = peer.state.node, graph.peers[other].state.node
            if isinstance(here, ChocoNode) and isinstance(there, ChocoNode):
                assert here.held[other].vector.tobytes() == there.publisher.replica.vector.tobytes()


@pytest.mark.parametrize("text", METHODS)
def test_frames_that_cannot_be_followed_are_refused_and_the_edge_is_not_used(
    tmp_path: Path, calls: ThreadPoolExecutor, text: str
) -> None:
    graph = Graph(tmp_path, parse_method(text), 2, calls)
    for number in (0, 1):
        graph.publish(number, 1, np.ones(N, np.float32))
    for frames in (b"", b"FCMP" + bytes(60), np.random.default_rng(0).bytes(500)):
        with pytest.raises(FedcompError):
            graph.peers[0].deliver(1, 1, frames, alive)
    assert graph.peers[0].decide() == set()
    assert graph.peers[0].mix() == []


@pytest.mark.parametrize("text", ["choco(dense(), step_size=1.0)", "deep_squeeze(stc(density=1.0), step_size=1.0)"])
@pytest.mark.parametrize("value", [1e6, 1e30, 3e38])
def test_a_message_that_is_out_of_all_proportion_costs_its_edge_at_both_ends(
    tmp_path: Path, calls: ThreadPoolExecutor, text: str, value: float
) -> None:
    """One certified neighbour must not end a node by a model that no training survives."""
    graph = Graph(tmp_path, parse_method(text), 3, calls)
    low, middle, high = graph.peers
    for number in range(3):
        graph.publish(number, 1, np.ones(N, np.float32))
    for peer in (low, high):  # as its own code would not
        peer.state.node.publish(np.full(N, value, np.float32), 1, 0)
    with pytest.raises(CorruptError, match="moves a model of norm 14"):
        middle.take(0, graph.fetch(1, 0))
    frames = b"".join(high.state.node.frames_from(middle.state.node.place_of(2)))
    with pytest.raises(CorruptError, match=r"at most 1414\.21 is possible"):
        middle.deliver(2, 1, frames, alive)
    assert middle.decide() == set()
    assert middle.mix() == []
    assert middle.model["w"].tolist() == [1] * N
