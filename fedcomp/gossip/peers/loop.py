"""The rounds of a node: train, publish, exchange with the neighbours that are there, mix."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from fedcomp.errors import FedcompError
from fedcomp.gossip.peers.links import Link, UnreachableError, message_options
from fedcomp.gossip.peers.peer import Fetched, Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.peers.records import COMPLETED, FAILED, RUNNING, Records, Traffic
from fedcomp.gossip.peers.service import Service, serve
from fedcomp.gossip.peers.settings import PeerSettings
from fedcomp.gossip.peers.task import Task
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.gossip.step_size import with_step_size
from fedcomp.sync import start_replica

log = logging.getLogger("fedcomp.gossip")
WATCH_S = 1.0
"""The wait for a delivery after which a node asks whether the neighbour is there."""
GRACE_S = 2.0
MESSAGE_MARGIN = 1 << 16
CALLS_PER_NEIGHBOR = 4
DENSE_BYTES = 4
T = TypeVar("T")


@dataclass(slots=True)
class Rounds:
    """Drives a `peer` through its rounds; neighbours that are `away` are asked once in a round, and not waited for."""

    peer: Peer
    links: Mapping[int, Link]
    calls: ThreadPoolExecutor
    timeout_s: float
    away: set[int] = field(default_factory=set[int])

    def join(self) -> None:
        """Ask the neighbours that are there in which round they are; raise `RefusedError` if one is of another training."""
        calls = {each: self.calls.submit(link.hello, 0) for each, link in self.links.items()}
        replies = self._results(calls, logging.DEBUG)  # those that start later are waited for in the first round
        self.peer.ahead = max([self.peer.ahead, *(number for number, _ in replies.values())])

    def exchange(self) -> list[int]:
        """Exchange messages of the peer's round, which is published, and mix; return the neighbours whose edges were used."""
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
        return peer.mix()

    def finish(self) -> None:
        """Wait until the neighbours that are there have closed the last round, settle what is in doubt, and save."""
        last, doubts = self.peer.round, self.peer.state.doubts
        calls = {each: self.calls.submit(link.hello, last, patient=each in doubts) for each, link in self.links.items()}
        in_doubt = {each: call for each, call in calls.items() if each in doubts}
        others = {each: call for each, call in calls.items() if each not in doubts}
        answers = self._results(in_doubt) | self._results(others, logging.DEBUG)  # those that have ended are gone
        self.peer.finish({each: last_used for each, (_, last_used) in answers.items()})

    def _fetch(self, neighbor: int, number: int) -> Fetched:
        place = self.peer.place_of(neighbor)
        return self.links[neighbor].fetch(number, place, patient=neighbor not in self.away)

    def _await_deliveries(self, higher: Collection[int]) -> None:
        """Decide once all `higher` neighbours have delivered that may still do so."""
        away, number = self.away.intersection(higher), self.peer.round
        late = self.peer.missing(set(higher) - away, WATCH_S)
        for neighbor in (*away, *late):
            self.calls.submit(self._watch, neighbor, number, patient=neighbor not in away)
        self.peer.missing(higher, self.timeout_s)
        delivered = self.peer.decide()
        self.away = (self.away - set(higher)) | (set(higher) - delivered)

    def _watch(self, neighbor: int, number: int, *, patient: bool) -> None:
        """Expect no delivery any more once the neighbour does not answer, or has closed the round."""
        try:
            self.links[neighbor].hello(number, patient=patient)
        except UnreachableError as error:
            log.log(logging.WARNING if patient else logging.DEBUG, "node %d: %s", neighbor, error)
        finally:
            self.peer.give_up(neighbor, number)

    def _results(self, calls: Mapping[int, "Future[T]"], level: int = logging.WARNING) -> dict[int, T]:
        """Return the answers of the neighbours that could be reached; log the others, but those that are away already."""
        found: dict[int, T] = {}
        for neighbor, call in calls.items():
            try:
                found[neighbor] = call.result()
            except UnreachableError as error:
                log.log(logging.DEBUG if neighbor in self.away else level, "node %d: %s", neighbor, error)
        return found


def training_of(settings: PeerSettings, tensors: SharedTensors, fingerprint: int) -> int:
    """Return a digest of everything that the nodes of one training share."""
    topology = settings.topology
    shared = [
        topology.num_nodes,
        topology.edges,
        str(settings.method),
        settings.seed,
        tensors.layout.digest,
        fingerprint,
    ]
    return int.from_bytes(hashlib.sha256(json.dumps(shared).encode()).digest()[:8], "big")


def run(settings: PeerSettings, report: Callable[[Mapping[str, Any]], object]) -> None:
    """Run a node through all of its rounds, or from where it was killed; `report` gets the record of each round.

    Raises `ValueError` for a task that does not fit, `OSError` for an address or a folder that cannot be used, `CorruptError`
    for a state file of another training or a damaged one, and `RefusedError` if a neighbour is of another training.
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
    path = settings.state_dir / "state"
    if path.exists():
        state = PeerState.load(path, training, tensors, settings.method, settings.topology, settings.number)
    else:
        weights = settings.topology.weights(settings.number)
        state = PeerState(settings.method.start(tensors.layout, vector, weights), tensors.own_of(first))
    records = Records(settings.state_dir, settings.plain, settings.neighbors)
    peer = Peer(settings.number, state, tensors, seed=settings.seed, path=path, training=training)
    traffic = Traffic(settings.neighbors, DENSE_BYTES * tensors.layout.n)
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
            neighbor: Link(settings, neighbor, training=training, traffic=traffic, options=options)
            for neighbor in settings.neighbors
        }
        for link in links.values():
            stack.callback(link.close)
        _run(task, Rounds(peer, links, calls, settings.timeout_s), records, traffic, settings.rounds, report)


def _run(
    task: Task,
    rounds: Rounds,
    records: Records,
    traffic: Traffic,
    last: int,
    report: Callable[[Mapping[str, Any]], object],
) -> None:
    peer, status = rounds.peer, FAILED
    try:
        rounds.join()
        while peer.state.round < last:
            begin = time.monotonic()
            peer.begin(min(last, max(peer.state.round + 1, peer.ahead)))
            trained, kept = task.train(peer.model, peer.state.kept, peer.round)
            peer.publish(trained, dict(kept))
            used = rounds.exchange()
            results = task.evaluate(peer.model, peer.round)
            row = records.append(peer.round, traffic.take(), used, time.monotonic() - begin, results)
            report(row)
            records.write_status(RUNNING)
        rounds.finish()
        status = COMPLETED
    finally:
        records.write_status(status)
