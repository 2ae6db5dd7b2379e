"""The gRPC server of a node: what neighbours ask, health and reflection.  What arrives is hostile until it is parsed."""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fedcomp.errors import FedcompError, StaleError
from fedcomp.gossip.peers import gossip_pb2
from fedcomp.gossip.peers.links import NAME, SERVICE
from fedcomp.gossip.peers.peer import Peer, PeerStoppedError
from fedcomp.gossip.peers.records import Traffic
from fedcomp.gossip.peers.settings import Tls

CALLS_PER_NEIGHBOR = 4
"""One of each kind, and one that replaces a call whose connection was lost."""
OTHER_CALLS = 4
Handler = Callable[[bytes, Any], bytes]


class Service:
    """Answers the `neighbors` of `peer`; if it is `secure`, only a caller whose certificate names the node that it claims."""

    def __init__(
        self,
        peer: Peer,
        neighbors: Collection[int],
        *,
        training: int,
        rounds: int,
        traffic: Traffic,
        secure: bool,
    ) -> None:
        self._peer, self._neighbors, self._training, self._rounds = peer, neighbors, training, rounds
        self._traffic, self._secure = traffic, secure

    @property
    def num_neighbors(self) -> int:
        """The number of nodes that may call."""
        return len(self._neighbors)

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the names of the service's methods; they take and return bytes, so that all are counted."""
        return {
            "Hello": self._handler(gossip_pb2.HelloRequest, self._hello),
            "Fetch": self._handler(gossip_pb2.FetchRequest, self._fetch),
            "Deliver": self._handler(gossip_pb2.DeliverRequest, self._deliver),
        }

    def _handler(self, request_class: Any, answer: Callable[[Any, Any], Any]) -> Handler:
        def handle(data: bytes, context: Any) -> bytes:
            request = self._checked(data, request_class, context)
            self._traffic.count(request.node, downlink_bytes=len(data))
            try:
                reply: bytes = answer(request, context.is_active).SerializeToString()
            except StaleError as error:
                _refuse(context, grpc.StatusCode.CANCELLED, str(error))
            except FedcompError as error:
                _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"frames that cannot be followed: {error}")
            except PeerStoppedError:
                _refuse(context, grpc.StatusCode.UNAVAILABLE, f"node {self._peer.number} ends")
            self._traffic.count(request.node, uplink_bytes=len(reply))
            return reply

        return handle

    def _checked(self, data: bytes, request_class: Any, context: Any) -> Any:
        try:
            request = request_class.FromString(data)
        except DecodeError as error:
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"no {request_class.__name__}: {error}")
        if request.node not in self._neighbors:
            needed = ", ".join(map(str, sorted(self._neighbors)))
            _refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"a call from node {request.node}; one of {needed} may")
        names = context.auth_context().get("x509_common_name", [])
        if self._secure and names != [NAME.format(request.node).encode()]:
            _refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"a certificate of {names}, and node {request.node}")
        if request.training != self._training:
            sentence = "nodes of one training have the same graph, method, seed and first model"
            _refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"node {request.node} differs from node {self._peer.number}; {sentence}",
            )
        if request.round > self._rounds:
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, f"round {request.round}; there are {self._rounds}")
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


def _refuse(context: Any, code: Any, text: str) -> NoReturn:
    context.abort(code, text)  # raises
    raise AssertionError(text)


def serve(service: Service, address: str, tls: Tls | None, options: list[tuple[str, int]]) -> Any:
    """Return the server at `address`, which has started, with health and reflection; raise `OSError` if it is not possible."""
    workers = CALLS_PER_NEIGHBOR * service.num_neighbors + OTHER_CALLS
    server = grpc.server(
        ThreadPoolExecutor(workers, thread_name_prefix="gossip"),
        options=[*options, ("grpc.so_reuseport", 0)],
        maximum_concurrent_rpcs=workers,
    )
    methods: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(handle) for name, handle in service.handlers().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    healthy = health.HealthServicer()
    for name in ("", SERVICE):
        healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        if tls is None:
            server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)], root_certificates=tls.ca, require_client_auth=True
            )
            server.add_secure_port(address, credentials)
    except RuntimeError as error:  # gRPC's only one
        raise OSError(f"listen is {address!r}; a free address of this machine is needed ({error})") from None
    server.start()
    return server
