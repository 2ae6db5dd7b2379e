"""Whole ends that the fuzzer attacks: a node of a graph, with its service and its state file, and both ends of split training.

Their models are small, whatever size was drawn.  `mutants.py` changes what arrives, and `doors.py` asks for the law.
"""

import copy
import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import numpy as np
from google.protobuf.message import DecodeError

import fedcomp
from fedcomp.core import Arrays, read_archive
from fedcomp.errors import FedcompError
from fedcomp.gossip import parse_method, parse_topology
from fedcomp.gossip.peers import gossip_pb2 as pb
from fedcomp.gossip.peers.peer import Fetched, Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.peers.round_log import RoundTraffic
from fedcomp.gossip.peers.service import Service
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.split import SplitSettings
from tests.split.pair import Pair
from tests.wire.mutations import HUGE, disturb, disturb_head, seal_frame, seal_server_message

REQUESTS = {"HELLO": pb.HelloRequest, "FETCH": pb.FetchRequest, "DELIVER": pb.DeliverRequest}
FETCHED, STATE, SPLIT_ANSWER, SPLIT_MESSAGE = "FETCHED", "STATE", "SPLIT_ANSWER", "SPLIT_MESSAGE"
KINDS = (*REQUESTS, FETCHED, STATE, SPLIT_ANSWER, SPLIT_MESSAGE)
ENTRIES = 300
"""Of the models; `Mutant.codec` of a message to a node is the place of its method."""
METHODS = ("choco(topk(density=0.2, feedback=False), step_size=0.3)", "deep_squeeze(stc(density=0.2), step_size=0.3)")
TOPOLOGY = parse_topology("ring()", 3)
TRAINING, ROUNDS = 7, 1000
HERE = 1
"""The node that is attacked: by node 0, which it asks, and node 2, which asks it."""
MODEL = {"w": np.linspace(-1, 1, ENTRIES, dtype=np.float32), "steps": np.array(3)}
TENSORS = SharedTensors.of(MODEL)
SETTINGS = SplitSettings(fedcomp.cgx(bits=4), fedcomp.cgx(bits=4), batch_size=8, steps=6)


class Aborted(FedcompError):
    """A call that ended with a status."""


class Context:
    """What gRPC gives to a handler."""

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return nothing: plain text."""
        return {}

    def is_active(self) -> bool:
        """Return that the caller is gone, so that nobody waits."""
        return False

    def abort(self, code: Any, text: str) -> NoReturn:
        """End the call."""
        raise Aborted(f"{code.name}: {text}")


# ---- a node of a graph -----------------------------------------------------------------------------------------------


def load(path: Path, method: int) -> PeerState:
    """Return the state of the attacked node in a file."""
    return PeerState.load(path, TRAINING, TENSORS, parse_method(METHODS[method]), TOPOLOGY, HERE)


def node(number: int, method: int, folder: Path) -> Peer:
    """Return a node that has published in round 1."""
    start = parse_method(METHODS[method]).start(TENSORS.layout, TENSORS.vector(MODEL), TOPOLOGY.weights(number))
    state = PeerState(start, TENSORS.own_of(MODEL))
    peer = Peer(number, state, TENSORS, seed=0, path=folder / f"{number}", training=TRAINING)
    peer.begin(1)
    trained = MODEL["w"] + np.random.default_rng(number).standard_normal(ENTRIES, np.float32)
    peer.publish({"w": trained, "steps": np.array(4)}, {"momentum": np.ones(3, np.float32)})
    return peer


def service(peer: Peer) -> Service:
    """Return the service of a node, in plain text."""
    return Service(
        peer, [0, 2], training=TRAINING, rounds=ROUNDS, traffic=RoundTraffic([0, 2], 4 * ENTRIES), secure=False
    )


def held(peer: Peer) -> dict[str, bytes]:
    """Return what a refused message leaves as it was."""
    arrays = peer.state.node.to_arrays()
    return {name: array.tobytes() for name, array in arrays.items() if not name.startswith(("held/", "taken/"))}


@lru_cache(maxsize=2)
def specimens(method: int) -> tuple[bytes, Fetched, bytes]:
    """Return the frames of node 2, the answer of node 0, and the state file of the attacked node: all undamaged."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        low, here, high = (node(number, method, folder) for number in range(3))
        answer = low.fetch(HERE, 1, here.place_of(0), lambda: False)
        return b"".join(high.state.node.frames_from(here.place_of(2))), answer, (folder / f"{HERE}").read_bytes()


def request(rng: Random, kind: str, method: int) -> bytes:
    """Return a request of node 2 in which a field, some bytes or the frames are changed, these most often with a checksum."""
    frames, _, _ = specimens(method)
    fields: dict[str, Any] = {"training": TRAINING, "node": 2, "round": rng.choice((0, 1, 1, 1, 2))}
    fields |= {"version": 0, "fingerprint": 0} if kind == "FETCH" else {}
    fields |= {"frames": _frames(rng, frames)} if kind == "DELIVER" else {}
    if rng.random() < 0.5:
        name = rng.choice([each for each in fields if each != "frames"])
        bits = 64 if name in ("training", "version", "fingerprint") else 32
        fields[name] = rng.choice((*HUGE, rng.getrandbits(64))) % 2**bits
    data: bytes = REQUESTS[kind](**fields).SerializeToString()
    return disturb(rng, data) if rng.random() < 0.3 else data


def fetched(rng: Random, method: int) -> bytes:
    """Return an answer to a fetch, changed likewise."""
    _, answer, _ = specimens(method)
    place = answer.place if rng.random() < 0.7 else (rng.getrandbits(64), rng.getrandbits(64))
    numbers = {"round": 1 if rng.random() < 0.8 else rng.getrandbits(32), "last_used": rng.choice((0, 1, 2**32 - 1))}
    frames = _frames(rng, answer.frames)
    data: bytes = pb.FetchReply(frames=frames, version=place[0], fingerprint=place[1], **numbers).SerializeToString()
    return disturb(rng, data) if rng.random() < 0.2 else data


def state(rng: Random, method: int) -> bytes:
    """Return a state file with changed bytes, or whole archives whose arrays are changed."""
    whole = specimens(method)[2]
    if rng.random() < 0.4:
        return disturb(rng, whole)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "state"
        path.write_bytes(whole)
        arrays = read_archive(path)
    other = _changed(rng, arrays)
    file = io.BytesIO()
    np.savez(file, **other)  # type: ignore[arg-type]  # names are no keywords
    return file.getvalue()


def _changed(rng: Random, arrays: Arrays) -> Arrays:
    name, what = rng.choice(sorted(arrays)), rng.random()
    if what < 0.2:
        return {each: array for each, array in arrays.items() if each != name}
    if what < 0.3:
        return arrays | {name: arrays[rng.choice(sorted(arrays))]}
    if what < 0.4:
        return arrays | {name: arrays[name].astype(rng.choice(("<f2", "<f8", "<i4")))}
    data = disturb(rng, arrays[name].tobytes())
    size = arrays[name].dtype.itemsize
    return arrays | {name: np.frombuffer(data[: len(data) // size * size], arrays[name].dtype)}


def _frames(rng: Random, frames: bytes) -> bytes:
    what = rng.random()
    if what < 0.2:
        return frames
    if what < 0.3:
        return seal_frame(disturb_head(rng, frames))
    return seal_frame(disturb(rng, frames)) if what < 0.8 else disturb(rng, frames)


# ---- split training --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _pair() -> tuple[Pair, bytes, bytes]:
    """Return a pair in its second round, a message to the node, and its answer."""
    pair = Pair(SETTINGS)
    pair.run()
    pair.begin()
    pair.server.take(1, pair.answer(pair.server.message(1)))
    message = pair.server.message(1)
    return pair, message, copy.deepcopy(pair).answer(message)


def pair() -> Pair:
    """Return a copy of the pair, whose node has not answered yet."""
    return copy.deepcopy(_pair()[0])


def split_message(rng: Random) -> bytes:
    """Return the server's message with changed bytes, most often with a right checksum."""
    data = disturb(rng, _pair()[1])
    return seal_server_message(data) if rng.random() < 0.7 else data


def split_answer(rng: Random) -> bytes:
    """Return the node's answer, changed likewise."""
    data = _pair()[2]
    data = disturb_head(rng, data) if rng.random() < 0.2 else disturb(rng, data)
    return seal_frame(data) if rng.random() < 0.8 else data


# ---- the doors -------------------------------------------------------------------------------------------------------

Door = tuple[Callable[[], None], Callable[[bool], None]]
Need = Callable[[bool, str], None]


def door(kind: str, method: int, data: bytes, need: Need) -> Door:
    """Return what gives `data` to its receiver, and the check that follows, which gets whether it was refused."""
    if kind == STATE:
        return _state_door(method, data, need)
    if kind in (SPLIT_ANSWER, SPLIT_MESSAGE):
        return _split_door(kind, data, need)
    folder = tempfile.TemporaryDirectory()
    peer = node(HERE, method, Path(folder.name))
    before = held(peer)

    def enter() -> None:
        if kind != FETCHED:
            service(peer).handlers()[kind.capitalize()](iter([data]), Context())
            return
        try:
            reply = pb.FetchReply.FromString(data)
        except DecodeError as error:  # as `PeerLink` does
            raise Aborted(str(error)) from None
        fetched = Fetched(reply.round, reply.frames, (reply.version, reply.fingerprint), reply.last_used)
        if peer.take(0, fetched) is not None:
            peer.begin_deliveries([0])

    def check(_: bool) -> None:
        with folder:
            need(held(peer) == before, "a message has changed the model of a node that has not mixed")
            need(set(peer.claims) <= {0, 2}, "a claim of a node that is no neighbour")
            used = peer.decide()
            need(used <= {2}, "the edge of another node was used")
            peer.mix()
            need(bool(np.isfinite(peer.model["w"]).all()), "a model that is not finite")
            peer.save()
            load(Path(folder.name) / f"{HERE}", method)

    return enter, check


def _state_door(method: int, data: bytes, need: Need) -> Door:
    folder, found = tempfile.TemporaryDirectory(), list[PeerState]()
    path = Path(folder.name) / "state"
    path.write_bytes(data)

    def enter() -> None:
        found.append(load(path, method))

    def check(_: bool) -> None:
        with folder:
            need(path.read_bytes() == data, "a state was changed when it was read")
            for each in found:
                shapes = (each.node.model.shape, each.node.trained.shape)
                need(shapes == ((ENTRIES,), (ENTRIES,)) and each.round >= 0, "a state of another model")
                need(bool(np.isfinite(each.node.trained).all()), "a state that is not finite")
                Peer(HERE, each, TENSORS, seed=0, path=path, training=TRAINING)

    return enter, check


def _split_door(kind: str, data: bytes, need: Need) -> Door:
    both = pair()
    record = both.server.nodes[1]

    def upper() -> bytes:
        return b"".join(tensor.numpy().tobytes() for tensor in both.server.upper.state_dict().values())

    def memory() -> bytes:
        return record.memory.rows(record.memory.ids).tobytes()

    before = upper(), memory(), copy.deepcopy(both.state)

    def enter() -> None:
        if kind == SPLIT_ANSWER:
            both.server.take(1, data)
        else:
            both.answer(data)

    def check(refused: bool) -> None:
        if refused:
            need((upper(), memory()) == before[:2], "a refused answer has changed the server")
            first, second = both.state, before[2]
            need(
                first is not None and second is not None and first.number == second.number, "a refused message counted"
            )
        need(bool(np.isfinite(np.frombuffer(upper(), np.float32)).all()), "an upper part that is not finite")
        for _ in range(2):  # the training goes on
            with suppress(FedcompError):
                both.server.take(1, both.answer(both.server.message(1)))

    return enter, check
