"""Ask a part of Flower whether it serves, over its gRPC health endpoint: what a container's health check runs.

    python health.py 127.0.0.1:9099    # the part's --health-server-address

This file needs `grpcio` and `grpcio-health-checking` alone, which come with Flower: it is copied as it is.
"""

import argparse
import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_S = 5.0


def serves(address: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether the part at `address`, as host:port, says within `timeout_s` seconds that it serves."""
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def main() -> int:
    """Return the exit status: 0 if it serves, or 1 after one sentence."""
    parser = argparse.ArgumentParser(description="Ask a part of Flower whether it serves.")
    parser.add_argument("address", help="its --health-server-address, as 127.0.0.1:9099")
    address: str = parser.parse_args().address
    if serves(address):
        return 0
    print(f"{address} does not say that it serves", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
