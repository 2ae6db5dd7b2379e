"""The health check of a container: ask a SuperLink or SuperNode over its gRPC health endpoint.

    python health.py 127.0.0.1:9099    # its --health-server-address

This file is copied to the image alone.  It needs `grpcio` and `grpcio-health-checking`, which Flower installs.
"""

import argparse
import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_S = 5.0


def serves(address: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether the SuperLink or SuperNode at `address`, as host:port, reports within `timeout_s` that it serves."""
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def main() -> int:
    """Return the exit status: 0 if it serves, or 1 after one sentence."""
    parser = argparse.ArgumentParser(description="Ask a SuperLink or SuperNode whether it serves.")
    parser.add_argument("address", help="its --health-server-address, such as 127.0.0.1:9099")
    address: str = parser.parse_args().address
    if serves(address):
        return 0
    print(f"{address} does not serve", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
