"""What a node answers to calls that do not fit, and what it makes of answers that are no messages."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc
import numpy as np
import pytest

from deploy.environment import free_ports
from fedcomp.gossip import parse_method, parse_topology
from fedcomp.gossip.peers import gossip_pb2 as pb
from fedcomp.gossip.peers import read_settings
from fedcomp.gossip.peers.links import SERVICE, Link, UnreachableError
from fedcomp.gossip.peers.peer import Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.peers.records import Traffic
from fedcomp.gossip.peers.service import Service
from fedcomp.gossip.shared_tensors import SharedTensors
from tests.gossip.peers.toy import write_settings

N = 50
ROUNDS = 5


class Aborted(Exception):
    """A call ended with a status."""


class Context:
    """What gRPC gives to a handler."""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def is_active(self) -> bool:
        return False

    def abort(self, code: Any, text: str) -> NoReturn:
        raise Aborted(f"{code.name}: {text}")


@pytest.fixture
def handlers(tmp_path: Path) -> dict[str, Callable[[bytes, Any], bytes]]:
    """The handlers of node 0 of two, which decides in round 1."""
    tensors, topology = SharedTensors.of({"w": np.zeros(N, np.float32)}), parse_topology("ring()", 2)
    state = PeerState(
        parse_method("choco(dense(), step_size=1.0)").start(
            tensors.layout, np.zeros(N, np.float32), topology.weights(0)
        ),
        {},
    )
    peer = Peer(0, state, tensors, seed=0, path=tmp_path / "state", training=7)
    peer.begin(1)
    peer.publish({"w": np.ones(N, np.float32)}, {})
    return Service(peer, [1], training=7, rounds=ROUNDS, traffic=Traffic([1], 4 * N), secure=False).handlers()


@pytest.mark.parametrize(
    ("method", "request_of", "named"),
    [
        ("Hello", pb.HelloRequest(training=7, node=1, round=ROUNDS + 1), "INVALID_ARGUMENT: round 6; there are 5"),
        ("Fetch", pb.FetchRequest(training=7, node=1, round=2**31), "INVALID_ARGUMENT: round 2147483648; there are 5"),
        ("Deliver", pb.DeliverRequest(training=7, node=1, round=ROUNDS + 1), "INVALID_ARGUMENT: round 6"),
        (
            "Deliver",
            pb.DeliverRequest(training=7, node=1, round=1, frames=b"FCMP"),
            "INVALID_ARGUMENT: frames that cannot",
        ),
        ("Hello", pb.HelloRequest(training=7, node=2, round=0), "PERMISSION_DENIED: a call from node 2; one of 1 may"),
        ("Hello", pb.HelloRequest(training=8, node=1, round=0), "FAILED_PRECONDITION: node 1 differs from node 0"),
        ("Hello", pb.HelloRequest(training=7, node=1, round=1), "CANCELLED: the caller is gone"),
    ],
)
def test_calls_that_do_not_fit_are_refused_in_a_sentence(
    handlers: dict[str, Callable[[bytes, Any], bytes]], method: str, request_of: Any, named: str
) -> None:
    with pytest.raises(Aborted, match=named):
        handlers[method](request_of.SerializeToString(), Context())
    assert pb.HelloReply.FromString(
        handlers["Hello"](pb.HelloRequest(training=7, node=1, round=0).SerializeToString(), Context())
    ) == pb.HelloReply(round=1, last_used=0)


@pytest.fixture
def port_of_junk() -> Iterator[int]:
    """The port of a server whose answers are no messages."""
    (port,) = free_ports(1)
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    junk = grpc.unary_unary_rpc_method_handler(lambda _data, _context: b"\xff\xff")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Hello": junk, "Fetch": junk}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    yield port
    server.stop(0).wait()


def test_an_answer_that_is_no_message_is_as_none(tmp_path: Path, port_of_junk: int) -> None:
    settings = read_settings(write_settings(tmp_path, 0, [9100, port_of_junk], timeout=60.0))
    link = Link(settings, 1, training=7, traffic=Traffic([1], 4 * N), options=[])
    try:
        with pytest.raises(UnreachableError, match="a reply that is no HelloReply"):
            link.hello(0, patient=True)
        with pytest.raises(UnreachableError, match="a reply that is no FetchReply"):
            link.fetch(0, (0, 0), patient=True)
    finally:
        link.close()
