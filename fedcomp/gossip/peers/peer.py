"""One node among its neighbours, without a network: its rounds, and the exchange that lets both ends of an edge agree.

Of the two ends of an edge, the node with the lower number decides.  In a round, the higher node fetches the message of the
lower node and delivers its own.  If the delivery comes before the lower node has closed the round, the lower node uses the
edge, saves this decision, and answers.

A node whose delivery is not answered is in doubt: it mixes without the edge, and keeps the difference that the edge would have
added.  In a later round, the lower node says in which round it used the edge last, which settles the doubt.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcomp.core import Arrays
from fedcomp.errors import CorruptError, StaleError
from fedcomp.gossip.nodes import Place, moved
from fedcomp.gossip.peers.claims import Claim
from fedcomp.gossip.peers.patience import patiently
from fedcomp.gossip.peers.peer_state import Doubt, PeerState
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.sync import MAX_WEIGHT_MAGNITUDE, derive_seed

MAX_PULL = 100
"""The largest change of a model by the message of one neighbour in a round, in norms of the model."""
POLL_S = 1.0
"""How often a waiting handler checks whether its caller is still connected."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A node's answer in `round`: its message's frames, the place of the caller's messages that it holds, the edge's last use.

    If `round` is not the requested round, there are no frames.
    """

    round: int
    frames: bytes = b""
    place: Place = (0, 0)
    last_used: int = 0


class PeerStoppedError(Exception):
    """The node ends, and gives no more answers."""


class Peer:
    """The state of node `number` and the rules of its changes.  One thread drives the rounds; others answer neighbours.

    `path` is the file of the state.  It is written before a message or a decision leaves; while there is no room for it, nobody
    gets an answer.  `round` is the current round, from its training on.  `claims` are the rounds that the neighbours claim to
    be in.
    """

    def __init__(
        self, number: int, state: PeerState, tensors: SharedTensors, *, seed: int, path: Path, training: int
    ) -> None:
        self.number, self.state, self.round = number, state, state.round
        self.claims: dict[int, Claim] = {}
        self._tensors, self._seed, self._path, self._training = tensors, seed, path, training
        self._changed = threading.Condition()
        self._deciding = self._stopped = self._saving = False
        self._delivered: set[int] = set()
        self._passed: dict[int, int] = {}  # neighbour -> the last round in which it will not deliver any more
        self._confirmed: set[int] = set()
        if state.open:  # the node was killed in this round: only its promises hold
            self.mix()

    @property
    def model(self) -> Arrays:
        """The tensors of the node's model."""
        return self._tensors.arrays(self.state.node.model, self.state.own)

    # what the neighbours ask

    def hello(self, neighbor: int, round_number: int, is_alive: Callable[[], bool]) -> tuple[int, int]:
        """Wait until `round_number` is closed; return this node's round, and the last round in which it used the edge."""
        with self._changed:
            self._note(neighbor, 0, round_number)
            self._wait(lambda: self.state.round - self.state.open >= round_number, is_alive)
            return self.round, self.state.last_used.get(neighbor, 0)

    def fetch(self, neighbor: int, round_number: int, place: Place, is_alive: Callable[[], bool]) -> Fetched:
        """Wait for this round's message; return the frames that lead `neighbor` to it from `place`.

        Raises `CorruptError` for a lower neighbour: this node fetches its messages.
        """
        self._check_higher(neighbor)
        with self._changed:
            self._note(neighbor, round_number - 1, round_number)
            self._wait(lambda: self.round > round_number or self.state.round >= round_number, is_alive)
            if self.round != round_number:
                return Fetched(self.round)
            node, last_used = self.state.node, self.state.last_used.get(neighbor, 0)
            return Fetched(round_number, b"".join(node.frames_from(place)), node.place_of(neighbor), last_used)

    def deliver(self, neighbor: int, round_number: int, frames: bytes, is_alive: Callable[[], bool]) -> bool:
        """Take the frames of `neighbor` for this round; wait for the saved decision, and return whether the edge is used.

        A repeated delivery gets the same answer.  Raises `FedcompError` for frames that cannot be followed, and for frames of a
        lower neighbour.
        """
        self._check_higher(neighbor)
        with self._changed:
            self._wait(lambda: True, is_alive)
            if self._deciding and self.state.round == round_number:
                if neighbor not in self._delivered:
                    self.state.node.take(neighbor, [frames])
                    self._check_pull(neighbor)
                    self._delivered.add(neighbor)
                    self._changed.notify_all()
                self._wait(lambda: not self._deciding or self.state.round != round_number, is_alive)
            return self.state.last_used.get(neighbor) == round_number

    def _check_higher(self, neighbor: int) -> None:
        if neighbor < self.number:
            raise CorruptError(
                f"node {neighbor} has the lower number; node {self.number} calls it, and not the reverse"
            )

    def heard(self, neighbor: int, round_number: int) -> None:
        """Note the round that a neighbour claims to be in; 0 is no claim."""
        with self._changed:
            if round_number:
                self.claims[neighbor] = Claim(round_number, self.round)

    def _note(self, neighbor: int, passed: int, round_number: int) -> None:
        self._passed[neighbor] = max(passed, self._passed.get(neighbor, 0))
        self.heard(neighbor, round_number)
        self._changed.notify_all()

    def _wait(self, ready: Callable[[], bool], is_alive: Callable[[], bool]) -> None:
        """Wait until all changes are saved, and a neighbour's call is `ready` to be answered."""
        while self._saving or not ready():
            if self._stopped:
                raise PeerStoppedError
            if not is_alive():
                raise StaleError("the caller is gone")
            self._changed.wait(POLL_S)

    # what drives the rounds

    def begin(self, round_number: int) -> None:
        """Begin a round, later than all earlier ones; its training follows."""
        with self._changed:
            self.round = round_number
            self._changed.notify_all()

    def publish(self, trained: Mapping[str, Any], kept: Arrays) -> None:
        """End the training of the round: make the message of the model `trained`, and save the task's arrays `kept`.

        Raises `ValueError` for a model that does not fit or is not finite.
        """
        vector = self._tensors.vector(trained)
        with self._changed:
            state = self.state
            state.node.publish(vector, self.round, derive_seed(self._seed, self.round, self.number))
            state.own, state.kept = self._tensors.own_of(trained), kept
            state.round, state.open = self.round, True
            self._save()
            self._delivered, self._confirmed, self._deciding = set(), set(), True
            self._changed.notify_all()

    def place_of(self, neighbor: int) -> Place:
        """Return the place of the neighbour's messages that this node holds."""
        with self._changed:
            return self.state.node.place_of(neighbor)

    def take(self, neighbor: int, fetched: Fetched) -> bytes | None:
        """Take the message fetched from a lower neighbour, settle a doubt about the edge, and return the frames to deliver.

        Returns None if the neighbour is in another round.  Raises `FedcompError` for frames that cannot be followed.
        """
        with self._changed:
            self.heard(neighbor, fetched.round)
            if fetched.round != self.round:
                return None
            node = self.state.node
            if (doubt := self.state.doubts.pop(neighbor, None)) and fetched.last_used == doubt.round:
                node.trained = moved(node.trained, [doubt.difference])
            node.take(neighbor, [fetched.frames])
            self._check_pull(neighbor)
            return b"".join(node.frames_from(fetched.place))

    def _check_pull(self, neighbor: int) -> None:
        """Refuse a message that would move this node's model by more than `MAX_PULL` norms."""
        node = self.state.node
        size, own = (float(np.linalg.norm(vector)) for vector in (node.difference(neighbor), node.trained))
        limit = min(MAX_PULL * own, MAX_WEIGHT_MAGNITUDE) if own else MAX_WEIGHT_MAGNITUDE
        if not size <= limit:
            raise CorruptError(
                f"a message that moves a model of norm {own:g} by {size:g}; at most {limit:g} is possible"
            )

    def begin_deliveries(self, neighbors: Collection[int]) -> None:
        """Before messages leave for these lower neighbours, save the differences that this node owes if they use the edges."""
        with self._changed:
            for neighbor in neighbors:
                self.state.doubts[neighbor] = Doubt(self.state.round, self.state.node.difference(neighbor))
            if neighbors:
                self._save()

    def settle(self, neighbor: int, *, used: bool) -> None:
        """Take the answer to a delivery."""
        with self._changed:
            del self.state.doubts[neighbor]
            if used:
                self._confirmed.add(neighbor)

    def give_up(self, neighbor: int, round_number: int) -> None:
        """Expect nothing more from a higher neighbour in this round."""
        with self._changed:
            self._note(neighbor, round_number, 0)

    def missing(self, expected: Collection[int], timeout_s: float) -> list[int]:
        """Return the neighbours of `expected` that may still deliver, after `timeout_s` seconds or once there are none."""

        def left() -> list[int]:
            return [each for each in expected if each not in self._delivered and self._passed.get(each, 0) < self.round]

        with self._changed:
            self._changed.wait_for(lambda: not left(), timeout_s)
            return left()

    def decide(self) -> set[int]:
        """Use the edges of the higher neighbours that have delivered; save this, answer them, and return them."""
        with self._changed:
            self.state.last_used |= dict.fromkeys(self._delivered, self.state.round)
            if self._delivered:
                self._save()
            self._deciding = False
            self._changed.notify_all()
            return self._delivered

    def mix(self) -> list[int]:
        """Close the round: mix along the edges that both ends use, and return these neighbours."""
        with self._changed:
            used = sorted(self.state.used() | self._confirmed)
            self.state.node.mix(used)
            self.state.open = False
            self._changed.notify_all()
            return used

    def finish(self, last_used: Mapping[int, int]) -> None:
        """Save the state after the last round; `last_used`, the last use of each edge by lower neighbours, settles doubts."""
        with self._changed:
            node = self.state.node
            for neighbor in self.state.doubts.keys() & last_used.keys():
                doubt = self.state.doubts.pop(neighbor)
                if last_used[neighbor] == doubt.round:
                    node.model = moved(node.model, [doubt.difference])
            self._save()

    def save(self) -> None:
        """Save the state."""
        with self._changed:
            self._save()

    def stop(self) -> None:
        """Give no more answers."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _save(self) -> None:
        """Save the state, and wait as long as there is no room for it; meanwhile no neighbour gets an answer."""
        self._saving = True
        try:
            patiently(lambda: self.state.save(self._path, self._training, self.number), self._path, self._changed.wait)
        finally:
            self._saving = False
            self._changed.notify_all()
