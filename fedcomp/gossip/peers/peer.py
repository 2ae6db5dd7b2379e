"""One node among its neighbours, without a network: its rounds, and the exchange that lets both ends of an edge agree.

Of the two ends of an edge, the lower number decides.  In a round, the higher one fetches the message of the lower one and
delivers its own; the lower one uses the edge if the delivery came before it closed the round, writes that down, and answers.  A
node whose delivery is not answered is in doubt: it mixes without the edge, and keeps what the edge would have added until it
hears from the lower node in a later round, which says in which round it used the edge last.
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
"""The most that the message of one neighbour may move a model in a round, in norms of the model."""
POLL_S = 1.0
"""How often a handler that waits looks whether its caller is still there."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A node's answer in `round`: the frames of its message, what it holds of the caller's, and when it last used the edge.

    If `round` is not the one that was asked for, there are no frames.
    """

    round: int
    frames: bytes = b""
    place: Place = (0, 0)
    last_used: int = 0


class PeerStoppedError(Exception):
    """The node ends; it answers nothing more."""


class Peer:
    """The state of node `number` and the rules of its changes.  One thread drives the rounds; others answer neighbours.

    `path` is the file of the state: it is written before a message or a decision leaves, and nobody is answered while there is
    no room for it.  `round` is the round in which the node is, from its training on.  `claims` are the rounds in which the
    neighbours say that they are.
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
        if state.open:  # the node was killed in this round: what it had promised holds, and nothing else
            self.mix()

    @property
    def model(self) -> Arrays:
        """The tensors of the node's model."""
        return self._tensors.arrays(self.state.node.model, self.state.own)

    # what the neighbours ask

    def hello(self, neighbor: int, round_number: int, is_alive: Callable[[], bool]) -> tuple[int, int]:
        """Return the round in which this node is, and the last one in which it used the edge, once `round_number` is closed."""
        with self._changed:
            self._note(neighbor, 0, round_number)
            self._wait(lambda: self._closed() >= round_number, is_alive)
            return self.round, self.state.last_used.get(neighbor, 0)

    def fetch(self, neighbor: int, round_number: int, place: Place, is_alive: Callable[[], bool]) -> Fetched:
        """Return the frames that lead `neighbor` from `place` to the message of this round, once there is one.

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
        """Take the frames of `neighbor` for this round; return whether the edge is used, once that is decided and saved.

        A delivery that is repeated gets the same answer.  Raises `FedcompError` for frames that cannot be followed, and for
        those of a lower neighbour.
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
        """Note in which round a neighbour says that it is; 0 says nothing."""
        with self._changed:
            if round_number:
                self.claims[neighbor] = Claim(round_number, self.round)

    def _note(self, neighbor: int, passed: int, round_number: int) -> None:
        self._passed[neighbor] = max(passed, self._passed.get(neighbor, 0))
        self.heard(neighbor, round_number)
        self._changed.notify_all()

    def _closed(self) -> int:
        return self.state.round - self.state.open

    def _wait(self, ready: Callable[[], bool], is_alive: Callable[[], bool]) -> None:
        """Wait until all that has changed is saved, and a neighbour's call is `ready` to be answered."""
        while self._saving or not ready():
            if self._stopped:
                raise PeerStoppedError
            if not is_alive():
                raise StaleError("the caller is gone")
            self._changed.wait(POLL_S)

    # what drives the rounds

    def begin(self, round_number: int) -> None:
        """Begin a round, later than all before; its training follows."""
        with self._changed:
            self.round = round_number
            self._changed.notify_all()

    def publish(self, trained: Mapping[str, Any], kept: Arrays) -> None:
        """End the training of the round: make the message of the model `trained`, and save what the task keeps.

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
        """Return what this node holds of a neighbour's messages."""
        with self._changed:
            return self.state.node.place_of(neighbor)

    def take(self, neighbor: int, fetched: Fetched) -> bytes | None:
        """Take what was fetched from a lower neighbour, and settle the doubt about it; return the frames to deliver.

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
        """Refuse a message that would move this node's model out of all proportion."""
        node = self.state.node
        size, own = (float(np.linalg.norm(vector)) for vector in (node.difference(neighbor), node.trained))
        limit = min(MAX_PULL * own, MAX_WEIGHT_MAGNITUDE) if own else MAX_WEIGHT_MAGNITUDE
        if not size <= limit:
            raise CorruptError(
                f"a message that moves a model of norm {own:g} by {size:g}; at most {limit:g} is possible"
            )

    def begin_deliveries(self, neighbors: Collection[int]) -> None:
        """Save, before messages leave for these lower neighbours, what this node owes if they use the edges."""
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
        """Return which higher neighbours of `expected` may still deliver after `timeout_s` seconds, or sooner if none may."""

        def left() -> list[int]:
            return [each for each in expected if each not in self._delivered and self._passed.get(each, 0) < self.round]

        with self._changed:
            self._changed.wait_for(lambda: not left(), timeout_s)
            return left()

    def decide(self) -> set[int]:
        """Use the edges of the higher neighbours that have delivered, save that, let them know, and return them."""
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
        """Save the state after the last round; `last_used` is when lower neighbours used the edges last, to settle doubts."""
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
        """Answer nothing more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _save(self) -> None:
        """Save the state, however long there is no room for it; meanwhile no neighbour is answered."""
        self._saving = True
        try:
            patiently(lambda: self.state.save(self._path, self._training, self.number), self._path, self._changed.wait)
        finally:
            self._saving = False
            self._changed.notify_all()
