"""Health and reflection, for monitors: few calls at a time, so that they never block the threads that answer neighbours."""

from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from fedcomp.gossip.peers.shares import Shares, names_in, refuse

MONITOR_CALLS = 4
CALLS_PER_MONITOR = 2
CHECK = health_pb2.HealthCheckResponse


def monitor_handlers(service: str) -> list[Any]:
    """Return the generic handlers that report the health of `service`, and its methods.

    Health has no `Watch`, because its calls never end.
    """
    shares = Shares(CALLS_PER_MONITOR, MONITOR_CALLS)
    names = (service, health.SERVICE_NAME, reflection.SERVICE_NAME)
    described = reflection.ReflectionServicer(names)

    def check(messages: Iterator[Any], context: Any) -> Any:
        with shares.of(tuple(names_in(context)), context):
            request = next(messages, health_pb2.HealthCheckRequest())
            if request.service not in ("", service):
                refuse(context, grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}; there is {service}")
            return CHECK(status=CHECK.SERVING)

    def reflect(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        with shares.of(tuple(names_in(context)), context):
            yield from described.ServerReflectionInfo(messages, context)

    checks = grpc.stream_unary_rpc_method_handler(
        check,
        request_deserializer=health_pb2.HealthCheckRequest.FromString,
        response_serializer=CHECK.SerializeToString,
    )
    reflects = grpc.stream_stream_rpc_method_handler(
        reflect,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [
        grpc.method_handlers_generic_handler(health.SERVICE_NAME, {"Check": checks}),
        grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": reflects}),
    ]
