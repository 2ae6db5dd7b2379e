"""The share of the open files that connections may take."""

import subprocess
import sys

import pytest

from fedcomp.gossip.peers.handles import MAX_CONNECTIONS, PER_NEIGHBOR, needed_handles

CODE = "from fedcomp.gossip.peers.handles import max_connections; import sys; print(max_connections(int(sys.argv[1])))"


def connections(limit: str, num_neighbors: int) -> "subprocess.CompletedProcess[str]":
    command = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", sys.executable, "-c", CODE, str(num_neighbors)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("-n 1024", 512),
        ("-n 256", 128),
        ("-n 20000", MAX_CONNECTIONS),
        ("-S -n 256", MAX_CONNECTIONS),  # the hard limit is higher
    ],
)
def test_half_of_the_handles_are_for_connections(limit: str, expected: int) -> None:
    assert connections(limit, 2).stdout == f"{expected}\n"


def test_each_neighbor_has_its_connections_if_the_limit_is_low() -> None:
    assert int(connections("-n 600", 70).stdout) >= 70 * PER_NEIGHBOR


def test_a_limit_that_the_neighbors_alone_would_reach_is_one_sentence() -> None:
    found = connections("-n 256", 100)
    assert f"this process may open 256 files; a node with 100 neighbours needs {needed_handles(100)}" in found.stderr
