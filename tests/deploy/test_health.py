"""The health check against Flower's own health server, and against no server."""

import subprocess
import sys
from pathlib import Path

import pytest
from flwr.supercore.grpc_health import run_health_server_grpc_no_tls

from deploy.environment import free_ports
from deploy.health import serves

SCRIPT = Path(__file__).parents[2] / "deploy" / "health.py"


@pytest.fixture
def address() -> str:
    """A loopback address without a listener."""
    [port] = free_ports(1)
    return f"127.0.0.1:{port}"


def test_a_health_server_is_healthy_until_it_ends(address: str) -> None:
    assert not serves(address, timeout_s=1)
    server = run_health_server_grpc_no_tls(address)
    try:
        assert serves(address)
    finally:
        server.stop(grace=None).wait()
    assert not serves(address, timeout_s=1)


def test_the_file_works_alone_as_in_a_container(address: str, tmp_path: Path) -> None:
    def check() -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-I", str(SCRIPT), address]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    done = check()
    assert (done.returncode, done.stderr) == (1, f"{address} does not serve\n")
    server = run_health_server_grpc_no_tls(address)
    try:
        assert check().returncode == 0
    finally:
        server.stop(grace=None)
