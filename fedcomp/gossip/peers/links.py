"""The calls of a node to its neighbours, over gRPC with TLS on both sides."""

import time
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fedcomp.gossip.peers import gossip_pb2
from fedcomp.gossip.peers.peer import Fetched
from fedcomp.gossip.peers.round_log import RoundTraffic
from fedcomp.gossip.peers.settings import PeerSettings

SERVICE = "fedcomp.gossip.v1.Gossip"
MIN_PING_S = 1.0
MAX_PING_S = 60.0
SLOW_LINK = 62_500
"""The slowest link, in bytes per second, on which a ping behind the largest message is answered in time: half a Mbit/s."""
RETRY_S = 0.2
BUSY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""The statuses after which a patient call tries again: nobody answers, or too many calls are waiting at the neighbour."""
MAX_QUOTED = 300
"""Characters of a neighbour's text that are logged."""
NAME = "node-{}.gossip"
"""The common name and the DNS name in a node's certificate."""


def message_options(max_message_bytes: int, silence_s: float) -> list[tuple[str, int]]:
    """Return the options of channels and servers: a neighbour that answers no ping for about `silence_s` seconds is gone.

    A ping waits behind the message that is being sent.  So large models get more time, up to `MAX_PING_S`.
    """
    ping_s = max(silence_s / 2, MIN_PING_S)
    answer_s = min(ping_s + max_message_bytes / SLOW_LINK, max(ping_s, MAX_PING_S))
    ping_ms, answer_ms = int(1000 * ping_s), int(1000 * answer_s)
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", ping_ms),
        ("grpc.keepalive_timeout_ms", answer_ms),
        ("grpc.http2.ping_timeout_ms", answer_ms),  # the timeout that gRPC applies, a minute by default
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(500 * MIN_PING_S)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(500 * MIN_PING_S)),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", ping_ms),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.enable_retries", 0),  # retries would send bytes that are not counted
    ]


def quoted(text: str | None) -> str:
    """Return a neighbour's text as one line of at most `MAX_QUOTED` printable characters."""
    return "".join(each if each.isprintable() else " " for each in (text or "")[:MAX_QUOTED])


class UnreachableError(Exception):
    """A neighbour does not answer; the text says why."""


class RefusedError(Exception):
    """A neighbour answers, and refuses this node; the text is its sentence."""


class PeerLink:
    """The channel to one `neighbor`.  A patient call waits for a neighbour that does not answer yet.

    A patient call fails after `silence_s` seconds without a connection or a free place.  Any call fails after `timeout_s`
    seconds.  A brief call, to a neighbour that is not waited for, fails after `silence_s`.
    """

    def __init__(
        self,
        settings: PeerSettings,
        neighbor: int,
        *,
        training: int,
        traffic: RoundTraffic,
        options: list[tuple[str, int]],
    ) -> None:
        self._neighbor, self._traffic = neighbor, traffic
        self._timeout_s, self._silence_s = settings.timeout_s, settings.silence_s
        self._head = {"training": training, "node": settings.number}
        address = settings.neighbors[neighbor]
        if (tls := settings.tls) is None:
            self._channel: Any = grpc.insecure_channel(address, options)
        else:
            credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
            name = [("grpc.ssl_target_name_override", NAME.format(neighbor))]
            self._channel = grpc.secure_channel(address, credentials, [*options, *name])

    def hello(self, round_number: int, *, patient: bool = False, brief: bool = False) -> tuple[int, int]:
        """Once the neighbour has closed `round_number`, return its round, and the last round in which it used the edge."""
        request = gossip_pb2.HelloRequest(**self._head, round=round_number)
        reply = self._call("Hello", request, gossip_pb2.HelloReply, patient=patient, brief=brief)
        return reply.round, reply.last_used

    def fetch(self, round_number: int, place: tuple[int, int], *, patient: bool) -> Fetched:
        """Return the neighbour's message of a round, from the `place` that this node holds; brief unless `patient`."""
        request = gossip_pb2.FetchRequest(**self._head, round=round_number, version=place[0], fingerprint=place[1])
        reply = self._call("Fetch", request, gossip_pb2.FetchReply, patient=patient, brief=not patient)
        if reply.frames:
            self._traffic.count_model(self._neighbor, "dense_downlink_bytes")
        return Fetched(reply.round, reply.frames, (reply.version, reply.fingerprint), reply.last_used)

    def deliver(self, round_number: int, frames: bytes) -> bool:
        """Deliver `frames`, this node's message of the round; return whether the neighbour uses the edge in it."""
        request = gossip_pb2.DeliverRequest(**self._head, round=round_number, frames=frames)
        self._traffic.count_model(self._neighbor, "dense_uplink_bytes")
        return bool(self._call("Deliver", request, gossip_pb2.DeliverReply, patient=True).used)

    def close(self) -> None:
        """Cancel all calls."""
        self._channel.close()

    def _call(self, method: str, request: Any, reply_class: Any, *, patient: bool, brief: bool = False) -> Any:
        """Return the reply; if `patient`, try again until the neighbour has been silent for `silence_s` seconds.

        All calls may be repeated: the neighbour gives the same answer.  Bytes on a lost connection are not counted.
        """
        data, end = request.SerializeToString(), 0.0
        timeout_s = min(self._silence_s, self._timeout_s) if brief else self._timeout_s
        call = self._channel.unary_unary(f"/{SERVICE}/{method}")
        while True:
            try:
                answer = call(data, timeout=timeout_s)
                self._traffic.count(self._neighbor, uplink_bytes=len(data), downlink_bytes=len(answer))
                return reply_class.FromString(answer)
            except grpc.RpcError as error:
                status: Any = error
                if status.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    raise RefusedError(quoted(status.details())) from None
                end = end or time.monotonic() + self._silence_s
                if status.code() not in BUSY or not patient or time.monotonic() > end:
                    raise UnreachableError(f"{status.code().name}: {quoted(status.details())}") from None
                time.sleep(RETRY_S)
            except DecodeError as error:
                raise UnreachableError(f"a reply that is no {reply_class.__name__}: {error}") from None
            except ValueError as error:  # of gRPC: the channel was closed, because this node ends
                raise UnreachableError(str(error)) from None
