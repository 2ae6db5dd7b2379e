"""The gRPC server of a node: the calls of neighbours, health and reflection.  Every request is hostile until it is parsed.

Each neighbour has its own share of the calls, each of which takes a thread.  A request is read as a stream of one message.  So
the caller's certificate is known, and its share is taken, before the node waits for the first byte of the message.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fedcomp.errors import FedcompError, StaleError
from fedcomp.gossip.peers import gossip_pb2
from fedcomp.gossip.peers.handles import max_connections
from fedcomp.gossip.peers.links import NAME, SERVICE
from fedcomp.gossip.peers.monitors import MONITOR_CALLS, monitor_handlers
from fedcomp.gossip.peers.peer import Peer, PeerStoppedError
from fedcomp.gossip.peers.round_log import RoundTraffic
from fedcomp.gossip.peers.settings import Tls
from fedcomp.gossip.peers.shares import Shares, names_in, refuse

CALLS_PER_NEIGHBOR = 4
"""One call of each kind, and one that replaces a call whose connection was lost."""
OTHER_CALLS = MONITOR_CALLS + 4
"""Threads for monitors, and for calls that are refused."""
QUEUED_CALLS = 64
STREAMS_PER_CONNECTION = 16
HANDSHAKE_S = 10.0
IDLE_S = 600.0
"""A connection without calls is closed after this time: a neighbour opens another one when it calls again."""
Handler = Callable[[Iterator[bytes], Any], bytes]


class Service:
    """Answers the `neighbors` of `peer`; if `secure`, a caller's certificate must name the node that it claims to be."""

    def __init__(
        self, peer: Peer, neighbors: Collection[int], *, training: int, rounds: int, traffic: RoundTraffic, secure: bool
    ) -> None:
        self._peer, self._neighbors, self._training, self._rounds = peer, neighbors, training, rounds
        self._traffic, self._secure = traffic, secure
        self._shares = Shares(CALLS_PER_NEIGHBOR, CALLS_PER_NEIGHBOR * len(neighbors))
        self._names = {NAME.format(each).encode(): each for each in neighbors}

    @property
    def num_neighbors(self) -> int:
        """The number of nodes that may call."""
        return len(self._neighbors)

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the names of the service's methods; they take and return bytes, so that all bytes are counted.

        Each handler takes an iterator of one message.
        """
        return {
            "Hello": self._handler(gossip_pb2.HelloRequest, self._hello),
            "Fetch": self._handler(gossip_pb2.FetchRequest, self._fetch),
            "Deliver": self._handler(gossip_pb2.DeliverRequest, self._deliver),
        }

    def _handler(self, request_class: Any, answer: Callable[[Any, Any], Any]) -> Handler:
        def handle(messages: Iterator[bytes], context: Any) -> bytes:
            with self._share_of_certificate(context):
                data = next(messages, None)
                if data is None:
                    refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
                request = self._checked(data, request_class, context)
                with nullcontext() if self._secure else self._shares.of(request.node, context):
                    return self._answered(data, request, answer, context)

        return handle

    def _answered(self, data: bytes, request: Any, answer: Callable[[Any, Any], Any], context: Any) -> bytes:
        self._traffic.count(request.node, downlink_bytes=len(data))
        try:
            reply: bytes = answer(request, context.is_active).SerializeToString()
        except StaleError as error:
            refuse(context, grpc.StatusCode.CANCELLED, str(error))
        except FedcompError as error:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"a message that cannot be used: {error}")
        except PeerStoppedError:
            refuse(context, grpc.StatusCode.UNAVAILABLE, f"node {self._peer.number} ends")
        self._traffic.count(request.node, uplink_bytes=len(reply))
        return reply

    def _share_of_certificate(self, context: Any) -> AbstractContextManager[None]:
        """Return the share of the neighbour that the certificate names; refuse other nodes."""
        if not self._secure:
            return nullcontext()
        names = names_in(context)
        if len(names) != 1 or names[0] not in self._names:
            needed = ", ".join(sorted(name.decode() for name in self._names))
            refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"a certificate of {names}; one of {needed} may call")
        return self._shares.of(self._names[names[0]], context)

    def _checked(self, data: bytes, request_class: Any, context: Any) -> Any:
        try:
            request = request_class.FromString(data)
        except DecodeError as error:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"no {request_class.__name__}: {error}")
        if request.node not in self._neighbors:
            needed = ", ".join(map(str, sorted(self._neighbors)))
            refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"a call from node {request.node}; one of {needed} may")
        names = names_in(context)
        if self._secure and names != [NAME.format(request.node).encode()]:
            refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"a certificate of {names}, and node {request.node}")
        if request.training != self._training:
            found = f"node {request.node} differs from node {self._peer.number}"
            sentence = f"{found}; nodes of one training have the same graph, method, seed and first model"
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, sentence)
        if request.round > self._rounds:
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"round {request.round}; there are {self._rounds}")
        return request

    def _hello(self, request: Any, is_alive: Callable[[], bool]) -> Any:
        number, last_used = self._peer.hello(request.node, request.round, is_alive)
        return gossip_pb2.HelloReply(round=number, last_used=last_used)

    def _fetch(self, request: Any, is_alive: Callable[[], bool]) -> Any:
        place = (request.version, request.fingerprint)
        fetched = self._peer.fetch(request.node, request.round, place, is_alive)
        if fetched.frames:
            self._traffic.count_model(request.node, "dense_uplink_bytes")
        return gossip_pb2.FetchReply(
            round=fetched.round,
            frames=fetched.frames,
            version=fetched.place[0],
            fingerprint=fetched.place[1],
            last_used=fetched.last_used,
        )

    def _deliver(self, request: Any, is_alive: Callable[[], bool]) -> Any:
        self._traffic.count_model(request.node, "dense_downlink_bytes")
        used = self._peer.deliver(request.node, request.round, request.frames, is_alive)
        return gossip_pb2.DeliverReply(used=used)


def server_options(connections: int) -> list[tuple[str, int]]:
    """Return the options that bound the connections of strangers and neighbours, at most `connections`."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_S)),
        ("grpc.max_connection_idle_ms", int(1000 * IDLE_S)),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
    ]


def serve(service: Service, address: str, tls: Tls | None, options: list[tuple[str, int]]) -> Any:
    """Return the started server at `address`, with health and reflection; raise `OSError` if it cannot start."""
    workers = CALLS_PER_NEIGHBOR * service.num_neighbors + OTHER_CALLS
    server = grpc.server(
        ThreadPoolExecutor(workers, thread_name_prefix="gossip"),
        options=[*options, *server_options(max_connections(service.num_neighbors))],
        maximum_concurrent_rpcs=workers + QUEUED_CALLS,
    )
    methods: dict[str, Any] = {
        name: grpc.stream_unary_rpc_method_handler(handle) for name, handle in service.handlers().items()
    }
    own = grpc.method_handlers_generic_handler(SERVICE, methods)
    server.add_generic_rpc_handlers([own, *monitor_handlers(SERVICE)])
    try:
        if tls is None:
            server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)], root_certificates=tls.ca, require_client_auth=True
            )
            server.add_secure_port(address, credentials)
    except RuntimeError as error:  # the only error that gRPC raises
        raise OSError(f"listen is {address!r}; a free address of this machine is needed ({error})") from None
    server.start()
    return server
