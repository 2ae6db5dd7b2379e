"""The environment in which Flower's parts start, and free loopback ports for them."""

import os
import random
import socket
import sys
from contextlib import suppress
from pathlib import Path

PORTS = range(20000, 32000)  # below the ports that systems give to outgoing connections


def environment(home: Path, launchers: Path | None = None) -> dict[str, str]:
    """Return the environment of all processes of a run; Flower keeps its files in `home`.

    `launchers` is the folder of launchers that come before Flower's own programs (`fedcomp.warm`).
    """
    places = [launchers, Path(sys.executable).parent, os.environ.get("PATH")]
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds until a message that has come is noticed; 1 by default
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_WAIT_POLICY": "passive",  # a waiting thread that spins takes the core from the next client
        "PATH": os.pathsep.join(str(place) for place in places if place),  # Flower starts its parts by name
        "PYTHONUNBUFFERED": "1",
        "RAY_ADDRESS": "local",  # never a cluster that runs here already
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports that were free a moment ago; raise `RuntimeError` if there are too few.

    They are random, so that two programs that search at the same time do not find the same ports.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == count:
            return found
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    raise RuntimeError(f"found {len(found)} free ports from {PORTS.start} to {PORTS.stop}; {count} are needed")
