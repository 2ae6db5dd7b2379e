"""The environment in which Flower's parts are started, and loopback ports for them."""

import os
import secrets
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

PORTS = range(20000, 32000)  # below those that systems give to outgoing connections


def environment(home: Path) -> dict[str, str]:
    """Return the environment of all processes of a run; `home` is where Flower keeps its files."""
    own = {
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_WAIT_POLICY": "passive",  # a waiting thread that spins takes the core from the next client
        # Flower starts its parts by name
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "RAY_ADDRESS": "local",  # never a cluster that runs here already
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    return os.environ | own


def free_ports(count: int) -> list[int]:
    """Return loopback ports that were free a moment ago, all different; raise `RuntimeError` if there are too few.

    They are drawn: of two programs that look at the same time, the second does not find the first one's.
    """
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(count + 1000):
            if len(found) == count:
                return found
            port = PORTS[secrets.randbelow(len(PORTS))]
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    raise RuntimeError(f"found {len(found)} free ports from {PORTS.start} to {PORTS.stop}; {count} are needed")
