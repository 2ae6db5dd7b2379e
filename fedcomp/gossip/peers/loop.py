"""The rounds of a node: train, publish, exchange with the neighbours that are present, mix."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fedcomp.errors import FedcompError
from fedcomp.gossip.peers.claims import next_round
from fedcomp.gossip.peers.links import PeerLink, RefusedError, UnreachableError, message_options
from fedcomp.gossip.peers.patience import patiently
from fedcomp.gossip.peers.peer import Fetched, Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.peers.round_log import COMPLETED, DIGEST, FAILED, RUNNING, STOPPED, RoundLog, RoundTraffic
from fedcomp.gossip.peers.service import Service, serve
from fedcomp.gossip.peers.set_aside import open_state
from fedcomp.gossip.peers.settings import PeerSettings
from fedcomp.gossip.peers.task import Task
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.gossip.step_size import with_step_size
from fedcomp.sync import start_replica

log = logging.getLogger("fedcomp.gossip")
WATCH_S = 1.0
"""After waiting this long for a delivery, a node asks whether the neighbour is present."""
GRACE_S = 2.0
MESSAGE_MARGIN = 1 << 16
CALLS_PER_NEIGHBOR = 4
DENSE_BYTES = 4
T = TypeVar("T")


@dataclass(slots=True)
class RoundLoop:
    """Drives a `peer` through its rounds; neighbours that are `away` are asked once per round, and not waited for."""

    peer: Peer
    links: Mapping[int, PeerLink]
    calls: ThreadPoolExecutor
    timeout_s: float
    away: set[int] = field(default_factory=set[int])
    refusing: set[int] = field(default_factory=set[int])
    """The neighbours that say that they belong to another training."""
    used: list[int] = field(default_factory=list[int])
    """The neighbours whose edges were used in the last round."""
    has_mixed: bool = False
    watched: set[int] = field(default_factory=set[int])

    def join(self) -> None:
        """Ask the present neighbours for their rounds; raise `RefusedError` if most belong to another training."""
        calls = {each: self.calls.submit(link.hello, 0, brief=True) for each, link in self.links.items()}
        replies = self._results(calls, logging.DEBUG)  # neighbours that start later are waited for in the first round
        for neighbor, (number, _) in replies.items():
            self.peer.heard(neighbor, number)

    def next_round(self, last: int) -> int:
        """Return the next round, at most `last`; log the rounds that this node does not train."""
        own, claims = self.peer.state.round, self.peer.claims
        following = next_round(own, last, claims, len(self.links), is_alone=not self.used)
        if following > own + 1:
            said = ", ".join(f"node {each} in round {claims[each].round}" for each in sorted(claims))
            text = "%s: this node goes on in round %d, and does not train rounds %d to %d"
            log.warning(text, said, following, own + 1, following - 1)
        return following

    def exchange(self) -> list[int]:
        """Exchange messages of the peer's published round, and mix; return the neighbours whose edges were used.

        Raises `RefusedError` if most neighbours belong to another training, and none has ever mixed with this node.
        """
        peer, number = self.peer, self.peer.round
        lower = [each for each in self.links if each < peer.number]
        fetched = self._results({each: self.calls.submit(self._fetch, each, number) for each in lower})
        self.away = (self.away - set(lower)) | (set(lower) - fetched.keys())
        frames: dict[int, bytes] = {}
        for neighbor, answer in fetched.items():
            try:
                if (reply := peer.take(neighbor, answer)) is not None:
                    frames[neighbor] = reply
            except FedcompError as error:
                log.warning("round %d: the message of node %d cannot be followed: %s", number, neighbor, error)
        peer.begin_deliveries(frames)
        calls = {each: self.calls.submit(self.links[each].deliver, number, data) for each, data in frames.items()}
        self._await_deliveries([each for each in self.links if each > peer.number])
        for neighbor, used in self._results(calls).items():
            peer.settle(neighbor, used=used)
        self.used = peer.mix()
        self.has_mixed = self.has_mixed or bool(self.used)
        return self.used

    def finish(self) -> None:
        """Wait until the present neighbours have closed the last round, settle all doubts, and save."""
        last, doubts = self.peer.round, self.peer.state.doubts
        calls = {each: self.calls.submit(link.hello, last, patient=each in doubts) for each, link in self.links.items()}
        in_doubt = {each: call for each, call in calls.items() if each in doubts}
        others = {each: call for each, call in calls.items() if each not in doubts}
        answers = self._results(in_doubt) | self._results(others, logging.DEBUG)  # nodes that have ended do not answer
        self.peer.finish({each: last_used for each, (_, last_used) in answers.items()})

    def _fetch(self, neighbor: int, number: int) -> Fetched:
        place = self.peer.place_of(neighbor)
        return self.links[neighbor].fetch(number, place, patient=neighbor not in self.away)

    def _await_deliveries(self, higher: Collection[int]) -> None:
        """Wait until each of the `higher` neighbours has delivered or will not deliver any more, then decide."""
        away, number = self.away.intersection(higher), self.peer.round
        late = self.peer.missing(set(higher) - away, WATCH_S)
        for neighbor in {*away, *late} - self.watched:
            self.watched.add(neighbor)
            self.calls.submit(self._watch, neighbor, number, patient=neighbor not in away)
        self.peer.missing(higher, self.timeout_s)
        delivered = self.peer.decide()
        self.away = (self.away - set(higher)) | (set(higher) - delivered)

    def _watch(self, neighbor: int, number: int, *, patient: bool) -> None:
        """Expect no delivery any more once the neighbour does not answer, or has closed the round.

        One call at a time watches a neighbour: calls that it never answers must not take the threads of the others.
        """
        closed = number
        try:
            self.links[neighbor].hello(number, patient=patient, brief=not patient)
        except (UnreachableError, RefusedError) as error:
            log.log(logging.WARNING if patient else logging.DEBUG, "node %d: %s", neighbor, error)
            closed = self.peer.round
        finally:
            self.watched.discard(neighbor)
            self.peer.give_up(neighbor, closed)

    def _results(self, calls: Mapping[int, "Future[T]"], level: int = logging.WARNING) -> dict[int, T]:
        """Return the answers of the neighbours that could be reached; log the others, unless they are known to be away.

        One neighbour that refuses this node costs only its own edge.  Raises `RefusedError` if most neighbours refuse it, and
        nobody has mixed with this node since it started.
        """
        found: dict[int, T] = {}
        for neighbor, call in calls.items():
            try:
                found[neighbor] = call.result()
                self.refusing.discard(neighbor)
            except UnreachableError as error:
                log.log(logging.DEBUG if neighbor in self.away else level, "node %d: %s", neighbor, error)
            except RefusedError as error:
                if neighbor not in self.refusing:
                    log.warning("node %d refuses this node: %s", neighbor, error)
                self.refusing.add(neighbor)
                if not self.has_mixed and 2 * len(self.refusing) > len(self.links):
                    raise
        return found


def training_of(settings: PeerSettings, tensors: SharedTensors, fingerprint: int) -> int:
    """Return a digest of everything that the nodes of one training share."""
    graph = (settings.topology.num_nodes, settings.topology.edges)
    shared = [*graph, str(settings.method), settings.seed, tensors.layout.digest, fingerprint]
    return int.from_bytes(hashlib.sha256(json.dumps(shared).encode()).digest()[:8], "big")


def run(settings: PeerSettings, report: Callable[[Mapping[str, Any]], object]) -> None:
    """Run a node through all of its rounds, or continue where it was killed; `report` gets the record of each round.

    The node waits while a disk is full or too many files are open.  A damaged state, or a state of another node or training,
    is set aside; so are the rounds of another node or training.

    Raises `ValueError` for a task that does not fit, `OSError` for an address or a folder that cannot be used, and
    `RefusedError` if most neighbours belong to another training.
    """
    task = settings.make_task(settings.number, settings.topology.num_nodes, settings.seed, **settings.task_settings)
    first = dict(task.first_model())
    tensors = SharedTensors.of(first)
    method = with_step_size(settings.topology, settings.method, tensors.layout.shapes)
    if settings.method.step_size is None:
        log.info("the step size is %g, found for this graph, method and model", method.step_size)
    settings = replace(settings, method=method)
    vector = tensors.vector(first)
    start = start_replica(tensors.layout, tensors.layout.unflatten(vector, b""))
    training = training_of(settings, tensors, start.fingerprint)
    number, topology = settings.number, settings.topology
    path = settings.state_dir / "state"

    def load() -> PeerState:
        return PeerState.load(path, training, tensors, method, topology, number)

    def first_state() -> PeerState:
        return PeerState(method.start(tensors.layout, vector, topology.weights(number)), tensors.own_of(first))

    state = patiently(lambda: open_state(path, load, first_state), path)
    plain = {**settings.plain, DIGEST: str(training)}
    round_log = patiently(lambda: RoundLog(settings.state_dir, plain, settings.neighbors), settings.state_dir)
    peer = Peer(number, state, tensors, seed=settings.seed, path=path, training=training)
    traffic = RoundTraffic(settings.neighbors, DENSE_BYTES * tensors.layout.n)
    service = Service(
        peer,
        settings.neighbors,
        training=training,
        rounds=settings.rounds,
        traffic=traffic,
        secure=settings.tls is not None,
    )
    with ExitStack() as stack:
        options = message_options(2 * start.key_frame().size + MESSAGE_MARGIN, settings.silence_s)
        server = serve(service, settings.listen, settings.tls, options)
        stack.callback(lambda: server.stop(GRACE_S).wait())
        stack.callback(peer.stop)
        calls = stack.enter_context(ThreadPoolExecutor(CALLS_PER_NEIGHBOR * len(settings.neighbors)))
        links = {
            neighbor: PeerLink(settings, neighbor, training=training, traffic=traffic, options=options)
            for neighbor in settings.neighbors
        }
        for link in links.values():
            stack.callback(link.close)
        _run(task, RoundLoop(peer, links, calls, settings.timeout_s), round_log, traffic, settings.rounds, report)


def _run(
    task: Task,
    rounds: RoundLoop,
    round_log: RoundLog,
    traffic: RoundTraffic,
    last: int,
    report: Callable[[Mapping[str, Any]], object],
) -> None:
    peer, folder = rounds.peer, round_log.folder
    if peer.state.round >= last:
        text = (
            "%s has %d rounds, and rounds is %d: nothing is left to train; more rounds or another state-dir are needed"
        )
        log.info(text, folder, peer.state.round, last)
    else:
        patiently(round_log.begin, folder)
    try:
        rounds.join()
        while peer.state.round < last:
            begin = time.monotonic()
            peer.begin(rounds.next_round(last))
            trained, kept = patiently(lambda: task.train(peer.model, peer.state.kept, peer.round), folder)
            peer.publish(trained, dict(kept))
            used = rounds.exchange()
            results = patiently(lambda: task.evaluate(peer.model, peer.round), folder)
            row = round_log.row(peer.round, traffic.take(), used, time.monotonic() - begin, results)
            patiently(lambda row=row: round_log.append(row), folder)  # type: ignore[misc]  # not inferred
            report(row)
            patiently(lambda: round_log.write_status(RUNNING), folder)
        rounds.finish()
        patiently(lambda: round_log.write_status(COMPLETED), folder)
    except BaseException as error:
        with suppress(OSError):  # the error that ends the node is the one to raise
            if isinstance(error, Exception):
                round_log.write_status(FAILED, " ".join(str(error).split()) or type(error).__name__)
            else:  # a signal
                round_log.write_status(STOPPED)
        raise
