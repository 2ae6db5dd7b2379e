"""Nodes of a graph as real processes behind real sockets: whatever happens to them and to their links, nothing is lost."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.netshape.link import ShapedLink
from deploy.environment import free_ports
from deploy.program import wait_until
from fedcomp.core import read_archive
from fedcomp.gossip import parse_topology
from tests.gossip.peers.toy import N, Toy, make_keys, tls, write_settings

pytestmark = pytest.mark.chaos
ROOT = Path(__file__).parents[3]
NODES, ROUNDS, SEED = 5, 90, 0
NEIGHBORS = parse_topology("ring()", NODES).neighbors
SILENCE_S, PATIENCE_S = 1.5, 200.0
ABSENCE_S = 6 * SILENCE_S
"""A ping takes some seconds to fail, and then calls are tried again for `SILENCE_S`."""
CUT, KILLED, STOPPED, FROZEN, HIT = range(NODES)
"""The nodes, named after what happens to them."""


class Ring:
    """The processes, and a link for each direction of each edge."""

    def __init__(self, folder: Path, method: str) -> None:
        self.folder, self.ports = folder, free_ports(NODES)
        make_keys(folder, NODES)
        self.links: dict[tuple[int, int], ShapedLink] = {}
        for node, neighbors in enumerate(NEIGHBORS):
            for other in neighbors:
                self.links[node, other] = ShapedLink(("127.0.0.1", self.ports[other])).start()
        self.paths = [self._settings(node, method) for node in range(NODES)]
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def _settings(self, node: int, method: str) -> Path:
        options: dict[str, Any] = {"method": method, "rounds": ROUNDS, "silence": SILENCE_S, "timeout": 60.0}
        task = "tests.gossip.peers.toy:Slow"
        path = write_settings(self.folder, node, self.ports, tls(self.folder, node), task=task, **options)
        text = path.read_text()
        for other in NEIGHBORS[node]:
            text = text.replace(
                f"{other} = '127.0.0.1:{self.ports[other]}'", f"{other} = '{self._address(node, other)}'"
            )
        path.write_text(text)
        return path

    def _address(self, node: int, other: int) -> str:
        return self.links[node, other].address

    def start(self, node: int) -> None:
        """Start a node, for the first time or again; its log goes on."""
        with (self.folder / f"node-{node}.log").open("ab") as log:
            command = [sys.executable, "-m", "fedcomp.gossip", str(self.paths[node])]
            self.running[node] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def send(self, node: int, number: signal.Signals) -> None:
        """Send a signal to a node."""
        self.running[node].send_signal(number)

    def end(self, node: int, number: signal.Signals) -> None:
        """End a node, and wait until it is gone."""
        self.send(node, number)
        self.running[node].wait(PATIENCE_S)

    def reach(self, node: int, rounds: int) -> None:
        """Wait until a node has finished this many rounds."""
        assert wait_until(lambda: len(self.rows(node)) >= rounds, PATIENCE_S), f"node {node}: {self.log(node)}"

    def rows(self, node: int) -> list[dict[str, Any]]:
        """Return the rounds that a node has written down."""
        path = self.folder / f"node-{node}" / "rounds.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def missed(self, node: int) -> int:
        """Return how often a neighbour finished a round without the node."""
        return sum(node not in row["used"] for other in NEIGHBORS[node] for row in self.rows(other))

    def log(self, node: int) -> str:
        """Return what a node said."""
        return (self.folder / f"node-{node}.log").read_text()

    def of(self, node: int) -> list[ShapedLink]:
        """Return all links from and to a node."""
        return [link for edge, link in self.links.items() if node in edge]

    def finish(self) -> list[Mapping[str, Any]]:
        """Wait for the end of all nodes, which is a good one; return their states."""
        for node, process in self.running.items():
            assert process.wait(PATIENCE_S) == 0, f"node {node}: {self.log(node)}"
        return [read_archive(self.folder / f"node-{node}" / "state") for node in range(NODES)]

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.running.values():
            if process.poll() is None:
                process.kill()  # also a frozen one
                process.wait(PATIENCE_S)
        for link in self.links.values():
            link.close()


@pytest.fixture(
    params=["choco(topk(density=0.1, feedback=False), step_size=0.3)", "deep_squeeze(stc(density=0.1), step_size=0.1)"]
)
def ring(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ring]:
    made = Ring(tmp_path, request.param)
    try:
        for node in range(NODES):
            made.start(node)
        yield made
    finally:
        made.close()


def test_nodes_that_kept_their_state_lose_nothing(ring: Ring) -> None:
    ring.reach(CUT, 4)
    for link in ring.of(CUT):
        link.cut()
    ring.reach(KILLED, 8)
    ring.end(KILLED, signal.SIGKILL)
    ring.start(KILLED)
    ring.reach(CUT, 14)
    ring.end(STOPPED, signal.SIGTERM)
    ring.send(FROZEN, signal.SIGSTOP)
    time.sleep(ABSENCE_S)
    ring.send(FROZEN, signal.SIGCONT)
    ring.start(STOPPED)
    ring.reach(CUT, 30)
    for link in ring.of(CUT):
        link.pause()
    time.sleep(ABSENCE_S)
    for link in ring.of(CUT):
        link.cut()
        link.resume()
    ring.reach(HIT, 40)
    for node in (HIT, KILLED):  # neighbours of one node at the same time
        ring.end(node, signal.SIGKILL)
        ring.start(node)
    states = ring.finish()

    expected = NODES * Toy(0, NODES, SEED).first_model()["w"].astype(np.float64)
    for node, state in enumerate(states):
        for number in state["kept/rounds"]:
            expected += np.random.default_rng([SEED, node, int(number)]).standard_normal(N, np.float32)
    total = np.sum([state["node/model"] for state in states], axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, expected, atol=1e-3)
    check_replicas(states)
    for node in (CUT, STOPPED, FROZEN):
        assert ring.missed(node), f"the others went on without node {node}"


@pytest.mark.parametrize("harm", ["lost", "damaged", "of another node"])
def test_a_node_without_its_state_is_healed_by_its_neighbors(ring: Ring, harm: str) -> None:
    ring.reach(HIT, 8)
    ring.end(HIT, signal.SIGKILL)
    folder = ring.folder / f"node-{HIT}"
    if harm == "lost":
        shutil.rmtree(folder)
    elif harm == "damaged":
        data = (folder / "state").read_bytes()
        (folder / "state").write_bytes(data[: len(data) // 2])
    else:
        shutil.copy(ring.folder / f"node-{CUT}" / "state", folder / "state")
    ring.start(HIT)
    states = ring.finish()
    assert (harm == "lost") != (str(folder / "state") in ring.log(HIT)), "it names the file that it set aside"
    check_replicas(states)
    models = np.stack([state["node/model"] for state in states])
    apart = np.abs(models - models.mean(axis=0)).max(axis=1)
    assert apart[HIT] < 2 * apart[[CUT, KILLED, STOPPED, FROZEN]].max(), "it is as near as the others"


def check_replicas(states: list[Mapping[str, Any]]) -> None:
    """Check that nodes hold the bits of their neighbours; Deep-Squeeze keeps none."""
    same = 0
    for node, state in enumerate(states):
        for other in NEIGHBORS[node]:
            if f"node/held/{other}/place" not in state:
                return
            if state[f"node/held/{other}/place"].tobytes() == states[other]["node/own/place"].tobytes():
                assert state[f"node/held/{other}/vector"].tobytes() == states[other]["node/own/vector"].tobytes()
                same += 1
    assert same >= NODES
