"""What a node answers to calls that do not fit, and what it makes of answers that are no messages."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer
from typing import Any, NoReturn

import grpc
import numpy as np
import pytest

from benchmarks.netshape.link import ShapedLink as Network
from deploy.environment import free_ports
from fedcomp.gossip import parse_method, parse_topology
from fedcomp.gossip.peers import gossip_pb2 as pb
from fedcomp.gossip.peers import read_settings
from fedcomp.gossip.peers.links import MAX_QUOTED, SERVICE, PeerLink, RefusedError, UnreachableError, message_options
from fedcomp.gossip.peers.peer import Peer
from fedcomp.gossip.peers.peer_state import PeerState
from fedcomp.gossip.peers.round_log import RoundTraffic
from fedcomp.gossip.peers.service import Handler, Service
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


def node(folder: Path) -> Peer:
    """Return node 0 of two, which decides in round 1."""
    tensors, topology = SharedTensors.of({"w": np.zeros(N, np.float32)}), parse_topology("ring()", 2)
    state = PeerState(
        parse_method("choco(dense(), step_size=1.0)").start(
            tensors.layout, np.zeros(N, np.float32), topology.weights(0)
        ),
        {},
    )
    peer = Peer(0, state, tensors, seed=0, path=folder / "state", training=7)
    peer.begin(1)
    peer.publish({"w": np.ones(N, np.float32)}, {})
    return peer


def service(folder: Path) -> Service:
    return Service(node(folder), [1], training=7, rounds=ROUNDS, traffic=RoundTraffic([1], 4 * N), secure=False)


@pytest.fixture
def handlers(tmp_path: Path) -> dict[str, Handler]:
    return service(tmp_path).handlers()


@pytest.mark.parametrize(
    ("method", "request_of", "named"),
    [
        ("Hello", pb.HelloRequest(training=7, node=1, round=ROUNDS + 1), "INVALID_ARGUMENT: round 6; there are 5"),
        ("Fetch", pb.FetchRequest(training=7, node=1, round=2**31), "INVALID_ARGUMENT: round 2147483648; there are 5"),
        ("Deliver", pb.DeliverRequest(training=7, node=1, round=ROUNDS + 1), "INVALID_ARGUMENT: round 6"),
        (
            "Deliver",
            pb.DeliverRequest(training=7, node=1, round=1, frames=b"FCMP"),
            "INVALID_ARGUMENT: a message that cannot be used",
        ),
        ("Hello", pb.HelloRequest(training=7, node=2, round=0), "PERMISSION_DENIED: a call from node 2; one of 1 may"),
        ("Hello", pb.HelloRequest(training=8, node=1, round=0), "FAILED_PRECONDITION: node 1 differs from node 0"),
        ("Hello", pb.HelloRequest(training=7, node=1, round=1), "CANCELLED: the caller is gone"),
    ],
)
def test_calls_that_do_not_fit_are_refused_in_a_sentence(
    handlers: dict[str, Handler], method: str, request_of: Any, named: str
) -> None:
    with pytest.raises(Aborted, match=named):
        handlers[method](iter([request_of.SerializeToString()]), Context())
    assert pb.HelloReply.FromString(
        handlers["Hello"](iter([pb.HelloRequest(training=7, node=1, round=0).SerializeToString()]), Context())
    ) == pb.HelloReply(round=1, last_used=0)


def test_a_stranger_reads_the_neighbors_in_ascending_order(tmp_path: Path) -> None:
    strict = Service(
        node(tmp_path), [8, 1], training=7, rounds=ROUNDS, traffic=RoundTraffic([1, 8], 4 * N), secure=False
    )
    stranger = pb.HelloRequest(training=7, node=2, round=0).SerializeToString()
    with pytest.raises(Aborted, match="a call from node 2; one of 1, 8 may"):
        strict.handlers()["Hello"](iter([stranger]), Context())


@contextmanager
def serving(**handlers: Callable[[bytes, Any], bytes]) -> Generator[int]:
    """Serve these methods in plain text; give the port."""
    (port,) = free_ports(1)
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    methods = {name: grpc.unary_unary_rpc_method_handler(handle) for name, handle in handlers.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    yield port
    server.stop(0).wait()


@contextmanager
def link_to(folder: Path, port: int, options: Sequence[tuple[str, int]] = (), **changes: float) -> Generator[PeerLink]:
    settings = read_settings(write_settings(folder, 0, [9100, port], "insecure = true", **changes))
    link = PeerLink(settings, 1, training=7, traffic=RoundTraffic([1], 4 * N), options=list(options))
    yield link
    link.close()


def test_an_answer_that_is_no_message_is_as_none(tmp_path: Path) -> None:
    def junk(_data: bytes, _context: Any) -> bytes:
        return b"\xff\xff"

    with serving(Hello=junk, Fetch=junk) as port, link_to(tmp_path, port, timeout=60.0) as link:
        with pytest.raises(UnreachableError, match="a reply that is no HelloReply"):
            link.hello(0, patient=True)
        with pytest.raises(UnreachableError, match="a reply that is no FetchReply"):
            link.fetch(0, (0, 0), patient=True)


def test_a_busy_neighbor_is_asked_again(tmp_path: Path) -> None:
    calls: list[bytes] = []

    def busy(data: bytes, context: Any) -> bytes:
        calls.append(data)
        if len(calls) < 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")
        reply: bytes = pb.HelloReply(round=4).SerializeToString()
        return reply

    with serving(Hello=busy) as port, link_to(tmp_path, port, silence=60.0) as link:
        with pytest.raises(UnreachableError, match="RESOURCE_EXHAUSTED: too many calls"):
            link.hello(0)
        assert link.hello(0, patient=True) == (4, 0)
    assert len(calls) == 3


def test_a_neighbor_that_is_away_and_holds_a_call_costs_the_silence_and_not_the_timeout(tmp_path: Path) -> None:
    release = Event()

    def never(_data: bytes, _context: Any) -> bytes:
        release.wait(60)
        return b""

    with serving(Hello=never, Fetch=never) as port, link_to(tmp_path, port, silence=0.2, timeout=1000.0) as link:
        try:
            with pytest.raises(UnreachableError, match="DEADLINE_EXCEEDED"):
                link.fetch(1, (0, 0), patient=False)
            with pytest.raises(UnreachableError, match="DEADLINE_EXCEEDED"):
                link.hello(1, brief=True)
        finally:
            release.set()


@pytest.mark.system
def test_a_neighbor_whose_network_is_gone_costs_the_silence_and_not_the_timeout(tmp_path: Path) -> None:
    """No connection is closed: the neighbour waits for a message that never comes, and answers no ping."""
    release = Event()

    def never(_data: bytes, _context: Any) -> bytes:
        release.wait(60)
        return b""

    options = message_options(1000, 0.2)
    with serving(Fetch=never) as port, Network(("127.0.0.1", port)) as network:
        with link_to(tmp_path, network.port, options, silence=0.2, timeout=20.0) as link:
            Timer(0.5, network.pause).start()
            with pytest.raises(UnreachableError, match="UNAVAILABLE"):
                link.fetch(1, (0, 0), patient=True)
        network.resume()
        release.set()


def test_pings_wait_behind_large_messages_for_a_minute_at_most() -> None:
    def answer_ms(max_message_bytes: int, silence_s: float) -> int:
        return dict(message_options(max_message_bytes, silence_s))["grpc.http2.ping_timeout_ms"]

    assert answer_ms(0, 5.0) == 2_500
    assert answer_ms(625_000, 5.0) == 12_500
    assert answer_ms(1 << 30, 5.0) == 60_000
    assert answer_ms(1 << 30, 300.0) == 150_000


def test_what_a_neighbor_says_is_logged_as_one_line(tmp_path: Path) -> None:
    def rude(_data: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "one\ntwo\x1b[31m" + "x" * 5000)
        return b""

    with serving(Hello=rude) as port, link_to(tmp_path, port) as link, pytest.raises(RefusedError) as caught:
        link.hello(0)
    assert str(caught.value).startswith("one two [31mxxx")
    assert len(str(caught.value)) == MAX_QUOTED


def test_a_certificate_that_is_no_neighbors_is_refused_before_its_message_is_read(tmp_path: Path) -> None:
    class OfNode(Context):
        """A caller with the certificate of node 5."""

        def auth_context(self) -> dict[str, list[bytes]]:
            return {"x509_common_name": [b"node-5.gossip"]}

    def unread() -> Iterator[bytes]:
        yield pytest.fail("the message was read")

    secure = Service(node(tmp_path), [1], training=7, rounds=ROUNDS, traffic=RoundTraffic([1], 4 * N), secure=True)
    with pytest.raises(Aborted, match="PERMISSION_DENIED: a certificate of .*; one of node-1.gossip may call"):
        secure.handlers()["Hello"](unread(), OfNode())
    with pytest.raises(Aborted, match="INVALID_ARGUMENT: a call without a message"):
        service(tmp_path / "other").handlers()["Hello"](iter([]), Context())
