"""A trial of the soak in which nodes of a graph train without a server: no thread and no network, but every fault of both.

Messages get lost, come late or twice, and are damaged; answers get lost; nodes are away, are killed, lose their state or get
an older one back; and one node names rounds in which it is not.  `tests/flower/soak.py` runs trials.
"""

import logging
import random
import shutil
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcomp.errors import FedcompError, StaleError
from fedcomp.gossip import parse_method, parse_topology
from fedcomp.gossip.choco import ChocoNode
from fedcomp.gossip.peers.claims import MAX_SKIPPED, next_round
from fedcomp.gossip.peers.peer import Fetched, Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.peers.set_aside import open_state
from fedcomp.gossip.shared_tensors import SharedTensors
from tests.wire.mutations import disturb, seal_frame

METHODS = (
    "choco(topk(density=0.2, feedback=False), step_size=0.3)",
    "choco(eden(bits=2), step_size=0.5)",
    "choco(qsgd(levels=7), step_size=0.3)",
    "choco(dense(), step_size=1.0)",
    "deep_squeeze(topk(density=0.2), step_size=0.3)",
    "deep_squeeze(stc(density=0.2), step_size=0.3)",
)
TOPOLOGIES = ("ring()", "complete()", "exponential()", "edges([[0, 1], [1, 2]])")
LAST = 10_000
TRAINING = 7
TOLERANCE = 2e-4
"""Of the largest entry, for sums of float32 over a trial."""
CALM_ROUNDS = 3
Frames = dict[tuple[int, int], bytes]


def gone() -> bool:
    """Answer for a caller that does not wait."""
    return False


class GossipTrial:
    """One graph: everything about it follows from the seed and the number."""

    def __init__(self, seed: int, number: int, folder: Path) -> None:
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.draws = np.random.default_rng([seed, number])
        self.folder, self.method_text, self.topology_text = folder, rng.choice(METHODS), rng.choice(TOPOLOGIES)
        self.num_nodes = 3 if self.topology_text.startswith("edges") else rng.randrange(2, 7)
        self.method = parse_method(self.method_text)
        self.topology = parse_topology(self.topology_text, self.num_nodes)
        self.rounds, self.rate = rng.randrange(8, 40), rng.choice((0.0, 0.1, 0.3, 0.5))
        self.is_harmful = rng.random() < 0.5
        """Whether states get lost, a node lies, and damage gets a right checksum: the sum of models is unknown then."""
        self.liar = rng.randrange(self.num_nodes) if self.is_harmful and rng.random() < 0.7 else -1
        self.model: dict[str, Any] = {
            "layer.weight": self.draws.standard_normal((rng.randrange(1, 20), 7)).astype(np.float32),
            "layer.bias": self.draws.standard_normal(rng.randrange(1, 40)).astype(np.float32),
            "steps": np.array(0),
        }
        self.tensors = SharedTensors.of(self.model)
        self.start = self.tensors.vector(self.model)
        self.exact = True
        """Whether the sum of all models is known: no state was lost, and no lie was believed."""
        self.done, self.faults = 0, Counter[str]()
        self.total = self.num_nodes * self.start.astype(np.float64)
        self.peers = [self._peer(each, self._first(each)) for each in range(self.num_nodes)]
        self.used = [True] * self.num_nodes
        self.late: list[tuple[int, int, int, bytes]] = []

    def __str__(self) -> str:
        lies = f", node {self.liar} lies" if self.liar >= 0 else ""
        return f"gossip: {self.method_text}, {self.topology_text} of {self.num_nodes}{lies}, rate {self.rate}"

    def seen(self) -> Collection[str]:
        """Return what took part."""
        exact = ("exact sum",) if self.exact else ()
        return ("gossip", f"gossip {self.method_text}", f"gossip {self.topology_text.partition('(')[0]}", *exact)

    # ---- nodes and their files

    def _first(self, number: int) -> PeerState:
        node = self.method.start(self.tensors.layout, self.start, self.topology.weights(number))
        return PeerState(node, self.tensors.own_of(self.model))

    def _peer(self, number: int, state: PeerState) -> Peer:
        return Peer(number, state, self.tensors, seed=0, path=self._path(number), training=TRAINING)

    def _path(self, number: int) -> Path:
        return self.folder / f"state-{number}"

    def _load(self, number: int) -> PeerState:
        return PeerState.load(self._path(number), TRAINING, self.tensors, self.method, self.topology, number)

    def _restart(self, number: int) -> None:
        """Kill a node and start it from its file, which is the one it wrote, an older one, another node's, or gone."""
        path, old = self._path(number), self.folder / f"old-{number}"
        if not path.exists():
            return
        what, is_whole = self.rng.random(), True
        if not self.is_harmful or what > 0.25:
            self.faults["killed"] += 1
        elif what < 0.1 and old.exists():
            shutil.copy(old, path)
            self._note("older state")
        elif what < 0.2:
            other = self._path(self.rng.choice([each for each in range(self.num_nodes) if each != number]))
            is_whole = False
            if other.exists():
                shutil.copy(other, path)
            else:
                path.unlink()
            self._note("state of another node" if path.exists() else "state lost")
        else:
            path.write_bytes(path.read_bytes()[: self.rng.randrange(path.stat().st_size)])
            is_whole = False
            self._note("state damaged")
        state = open_state(path, lambda: self._load(number), lambda: self._first(number))
        need(is_whole == path.exists(), f"a state that is {'' if is_whole else 'not '}whole was treated otherwise")
        self.peers[number] = self._peer(number, state)
        if path.exists() and self.rng.random() < 0.3:
            shutil.copy(path, old)

    def _note(self, fault: str) -> None:
        self.faults[fault] += 1
        self.exact = False

    def _fails(self, fault: str, share: float = 0.3) -> bool:
        """Return whether a fault happens now, and count it."""
        happens = self.rng.random() < share * self.rate
        self.faults[fault] += happens
        return happens

    # ---- rounds

    def run(self) -> None:
        """Run the rounds with faults, then some without, and check the laws."""
        logger = logging.getLogger("fedcomp.gossip")
        before, logger.disabled = logger.disabled, True  # it says what the faults of the trial are
        try:
            self._run()
        finally:
            logger.disabled = before

    def _run(self) -> None:
        for _ in range(self.rounds):
            self._turn([each for each in range(self.num_nodes) if not self._fails("away")])
        self.rate, self.late = 0.0, []
        while len({peer.state.round for peer in self.peers}) > 1:  # those that are ahead wait
            behind = min(peer.state.round for peer in self.peers)
            self._turn([each for each, peer in enumerate(self.peers) if peer.state.round == behind])
        for _ in range(CALM_ROUNDS):
            self._turn(range(self.num_nodes))
        self._check()

    def _turn(self, here: Collection[int]) -> None:
        """Let the nodes that are here train a round each, and exchange with those that are in the same round."""
        for number in here:
            self._begin(number, here)
        answers: Frames = {}
        for number in here:
            answers |= {(number, lower): frames for lower, frames in self._fetch(number, here).items()}
            if self._fails("killed in a round", 0.1):
                self._restart(number)
        self._deliver_late()
        for number in here:
            self.peers[number].decide()
            if self._fails("killed after its decision", 0.1):
                self._restart(number)
        for (number, lower), frames in answers.items():
            self._settle(number, lower, frames)
        for number in here:
            if (peer := self.peers[number]).state.open:
                self.used[number] = bool(peer.mix())
            if self._fails("killed after mixing", 0.2):
                self._restart(number)
        self.done += 1

    def _begin(self, number: int, here: Collection[int]) -> None:
        peer, neighbors = self.peers[number], self.topology.neighbors[number]
        honest = [peer.state.round]
        for other in neighbors:
            if other == self.liar and self.rate and self._fails("lie about a round", 1.0):
                peer.heard(other, self.rng.choice((LAST, LAST + 1, 2**32 - 1, peer.state.round + 2, 1)))
            elif other in here and not self._fails("claim lost"):
                peer.heard(other, self.peers[other].state.round)
            honest.append(self.peers[other].state.round)
        alone = not self.used[number]
        following = next_round(peer.state.round, LAST, peer.claims, len(neighbors), is_alone=alone)
        limit = max(peer.state.round + 1 + MAX_SKIPPED, *honest)
        need(peer.state.round < following <= limit, f"node {number} went from {peer.state.round} to {following}")
        step = 0.1 * self.draws.standard_normal(self.start.size)
        peer.begin(following)
        model = peer.model
        trained = self.tensors.arrays(
            (self.tensors.vector(model) + step).astype(np.float32), {"steps": model["steps"] + 1}
        )
        self.total += self.tensors.vector(trained).astype(np.float64) - self.tensors.vector(model)
        peer.publish(trained, {})

    def _fetch(self, number: int, here: Collection[int]) -> dict[int, bytes]:
        """Fetch from the lower neighbours and deliver to them; return the frames of those that took them."""
        peer, frames = self.peers[number], dict[int, bytes]()
        for lower in self.topology.neighbors[number]:
            if lower > number or lower not in here or self._fails("request lost"):
                continue
            try:
                answer = self.peers[lower].fetch(number, peer.round, peer.place_of(lower), gone)
            except StaleError:  # it is behind, and would answer later
                continue
            if self._fails("answer lost"):
                continue
            if (reply := self._taken(peer, lower, self._damaged(answer, lower))) is not None:
                frames[lower] = reply
        peer.begin_deliveries(frames)
        return {lower: data for lower, data in frames.items() if self._delivered(number, lower, data)}

    def _damaged(self, answer: Fetched, lower: int) -> Fetched:
        if lower == self.liar and answer.frames and self._fails("lie about an answer"):
            lie = self.rng.choice(({"round": LAST}, {"round": 2**32 - 1}, {"place": (2**63, 2**63)}, {"last_used": 1}))
            self.exact = False
            return replace(answer, **lie)
        if answer.frames and self._fails("answer damaged"):
            self.faults["answer with a checksum made right"] += (sealed := self.is_harmful and self.rng.random() < 0.5)
            data = disturb(self.rng, answer.frames)
            self.exact &= not sealed  # another message that its sender could have sent
            return replace(answer, frames=seal_frame(data) if sealed else data)
        return answer

    def _taken(self, peer: Peer, lower: int, answer: Fetched) -> bytes | None:
        before = self._bits(peer)
        try:
            return peer.take(lower, answer)
        except FedcompError:
            self.faults["answer refused"] += 1
            doubt = lower not in peer.state.doubts  # it may be settled by what the answer says besides its frames
            need(self._bits(peer) == before or doubt, "an answer that was refused has changed the node")
            return None

    def _bits(self, peer: Peer) -> dict[str, bytes]:
        """Return all that a refused message leaves as it was."""
        arrays = peer.state.node.to_arrays()
        return {name: array.tobytes() for name, array in arrays.items() if not name.startswith(("held/", "taken/"))}

    def _delivered(self, number: int, lower: int, data: bytes) -> bool:
        """Deliver frames, once, twice, late, damaged or not at all; return whether they have arrived."""
        to, round_number = self.peers[lower], self.peers[number].round
        if self._fails("delivery lost"):
            return False
        if self._fails("delivery late"):
            self.late.append((number, lower, round_number, data))
            return False
        if self._fails("delivery damaged"):
            before = self._bits(to)
            try:
                to.deliver(number, round_number, disturb(self.rng, data), gone)
            except (FedcompError, StaleError):
                need(self._bits(to) == before, "a delivery that was refused has changed the node")
        for _ in range(2 if self._fails("delivery twice") else 1):
            try:
                to.deliver(number, round_number, data, gone)
            except StaleError:  # it has arrived, and is answered once the node has decided
                pass
            except FedcompError:
                self.faults["delivery refused"] += 1
                return False
        return True

    def _deliver_late(self) -> None:
        """Deliver what is late: it is of an earlier round, or comes after its node has decided."""
        for number, lower, round_number, data in self.late:
            if self.peers[lower].state.round != round_number:
                used = self.peers[lower].deliver(number, round_number, data, gone)
                need(not used, "a delivery of an earlier round was used")
        self.late = self.late[-3:]

    def _settle(self, number: int, lower: int, frames: bytes) -> None:
        peer = self.peers[number]
        if self._fails("decision lost") or not peer.state.open or lower not in peer.state.doubts:
            return
        used = self.peers[lower].deliver(number, peer.round, frames, gone)
        if lower == self.liar and self._fails("lie about a decision"):
            self.exact, used = False, not used
        peer.settle(lower, used=used)

    # ---- laws

    def _check(self) -> None:
        need(len({peer.state.round for peer in self.peers}) == 1, "the nodes are in several rounds")
        for number, peer in enumerate(self.peers):
            need(not peer.state.doubts, f"node {number} is in doubt about {list(peer.state.doubts)}")
            need(bool(np.isfinite(peer.state.node.model).all()), f"the model of node {number} is not finite")
            need(self.used[number], f"node {number} mixed with nobody")
            here = peer.state.node
            for other in self.topology.neighbors[number]:
                there = self.peers[other].state.node
                if isinstance(here, ChocoNode) and isinstance(there, ChocoNode):
                    same = here.held[other].vector.tobytes() == there.publisher.replica.vector.tobytes()
                    need(same, f"node {number} holds other bits than node {other} has sent")
        if self.exact:
            found = np.sum([peer.state.node.model for peer in self.peers], axis=0, dtype=np.float64)
            error = float(np.abs(found - self.total).max())
            need(
                error <= TOLERANCE * max(1.0, float(np.abs(self.total).max())), f"the sum of models is off by {error:g}"
            )


def need(holds: bool, text: str) -> None:
    """Raise `AssertionError` unless a law holds."""
    if not holds:
        raise AssertionError(text)
