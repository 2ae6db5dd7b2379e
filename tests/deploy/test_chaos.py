"""A federation of real processes and sockets loses nothing, although everything goes wrong."""

import json
import shutil
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk

from benchmarks.netshape.link import ShapedLink
from clients.app import app as client_app
from deploy.federation import Federation
from fedcomp.flower import LocalGrid
from fedcomp.flower.client.state_folder import StateFolder
from fedcomp.flower.server.model.server_state import ServerState
from fedcomp.sync import Subscriber, Traffic
from server.app import app as server_app
from tests.deploy.chaos.server import Watching
from tests.deploy.live_federation import client_apps, fork_servers, server_apps, start_node, stop_node, watching_app

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower's bundling uses it
]

ROOT = Path(__file__).resolve().parents[2]
NODES, ROUNDS = 5, 12
CONFIG: dict[str, Any] = {
    "run-name": "chaos",
    "partition": "iid()",
    "model": "mlp",
    "fraction-train": 1.0,
    "local-steps": 800,
    "learning-rate": 0.05,
    "uplink": "stc(density=0.05)",
    "downlink": "stc(density=0.05)",
    "device": "cpu",
    "checkpoint-every": 1,
    "round-timeout": 40.0,
    "min-nodes": NODES,
}
QUIET, KILLED, STOPPED, ROBBED, FROZEN = range(NODES)
"""The nodes, named after what happens to them.  The start of the robbed one is not that of the server."""
PATIENCE_S = 300.0
MESSAGE_FRAMING, SECOND_FRAMING = 10_000, 1_000
"""Bytes on a socket per message and per second in addition to the frames: HTTP, TLS, names, hashes, polling."""


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """The state of server and nodes after the run."""

    folder: Path
    published: ServerState
    """The server after round `ROUNDS`; one more round sent its model to all nodes."""
    last: ServerState
    states: list[Subscriber]
    ids: list[int]
    up: list[int]
    down: list[int]
    seconds: float
    """The time from the start of the links to the end of the run."""
    bundle: int
    """Bytes of the app's bundle, which each run sends to each node."""
    accuracy: float
    log: str
    warm: bool
    """Whether the nodes ran under `fedcomp warm`."""
    forked: bool
    """Whether the process that trained was the child of a fork server."""

    def targets(self, node: int) -> list[Path]:
        """Return one file for each time that the node trained, with the update that the uplink had to send."""
        return sorted((self.folder / "book" / f"node-{node}").glob("*.npy"))


def _wait(ready: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module", params=[pytest.param("cold", marks=pytest.mark.nightly), "warm"])
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosResult]:
    folder = tmp_path_factory.mktemp("chaos")
    warm = request.param == "warm"
    book, run = folder / "book", folder / "runs" / "chaos"
    app = watching_app(folder / "app")
    config = {**CONFIG, "strategy": "watching", "runs-dir": str(folder / "runs")}

    def done() -> int:
        path = run / "rounds.jsonl"
        return len(path.read_text().splitlines()) - 1 if path.exists() else -1

    def reach(server_round: int) -> None:
        _wait(lambda: done() >= server_round, f"the end of round {server_round}")

    def begins(node: int, server_round: int) -> None:
        mark = book / f"node-{node}" / f"{server_round}.begun"
        _wait(mark.exists, f"node {node} to train in round {server_round}")

    with Federation(folder / "federation", NODES, env={"CHAOS_BOOK": str(book)}, warm=False) as federation:
        federation.start_superlink()
        begin = time.monotonic()
        links = [ShapedLink(("127.0.0.1", federation.port)).start() for _ in range(NODES)]
        for node, link in zip(federation.nodes, links, strict=True):
            node.superlink = link.address
            if warm:
                node.command = ["fedcomp", "warm", *node.command]
        federation.start_nodes()
        first = federation.run(app, {**config, "num-rounds": ROUNDS})
        with ThreadPoolExecutor() as later:
            begins(KILLED, 2)
            federation.nodes[KILLED].program.signal(signal.SIGKILL)
            _wait(lambda: not federation.nodes[KILLED].program.processes(), "the end of a node that was killed")
            back = later.submit(start_node, federation, KILLED)

            reach(3)
            stop_node(federation, STOPPED)
            stop_node(federation, ROBBED)
            shutil.rmtree(federation.nodes[ROBBED].folder / "state")
            start_node(federation, ROBBED)
            back.result()
            reach(6)
            start_node(federation, STOPPED)

            begins(QUIET, 7)
            for process in fork_servers(federation.nodes[QUIET].program) if warm else ():
                process.kill()  # the process that trains goes on, and the next message starts another server

            begins(FROZEN, 8)
            federation.nodes[FROZEN].program.signal(signal.SIGSTOP)
            reach(8)
            federation.nodes[FROZEN].program.signal(signal.SIGCONT)

            begins(STOPPED, 9)
            [process] = client_apps(federation.nodes[STOPPED].program)
            process.kill()
            begins(KILLED, 9)
            [hung] = client_apps(federation.nodes[KILLED].program)
            hung.suspend()
            forked = hung.parent() in fork_servers(federation.nodes[KILLED].program)
            reach(9)
            hung.resume()

            begins(QUIET, 10)
            for process in server_apps(federation):
                process.kill()
        first.stop()
        logs = [first.log()]
        published = []
        for rounds in (ROUNDS, ROUNDS + 1):
            again = federation.run(app, {**config, "num-rounds": rounds, "resume": True})
            assert again.wait(PATIENCE_S) == "finished:completed", again.log()
            published.append(ServerState.load(run / "checkpoint", Watching()))
            logs.append(again.log())
        states = []
        for node in federation.nodes:
            with StateFolder(node.folder / "state", RecordDict()) as state:
                states.append(state.load(published[0].publisher.training_id).subscriber)
        for link in links:
            link.close()
        records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
        yield ChaosResult(
            folder=folder,
            published=published[0],
            last=published[1],
            states=states,
            ids=[int(node.node_id) for node in federation.nodes],
            up=[link.up_bytes for link in links],
            down=[link.down_bytes for link in links],
            seconds=time.monotonic() - begin,
            bundle=len(build_fab_from_disk(app)),
            accuracy=float(np.mean([record["accuracy"] for record in records[-4:]])),
            log="".join(logs),
            warm=warm,
            forked=forked,
        )


def test_all_nodes_hold_the_published_model_to_the_bit(result: ChaosResult) -> None:
    published = result.published.publisher.replica
    assert published.version == ROUNDS
    for number, state in enumerate(result.states):
        assert state.replica is not None
        np.testing.assert_array_equal(state.replica.vector, published.vector, err_msg=f"node {number}")
        assert state.replica.fingerprint == published.fingerprint
        assert state.replica.exact == published.exact


def test_nodes_that_kept_their_state_lose_nothing(result: ChaosResult) -> None:
    for number in (QUIET, KILLED, STOPPED, FROZEN):
        files, node_id = result.targets(number), str(result.ids[number])
        assert len(files) >= 6
        target = sum(np.load(path) for path in files)
        acked = np.zeros_like(target)
        for path in (result.folder / "book").glob("taken-*.npz"):
            with np.load(path) as arrived:
                acked += arrived.get(node_id, 0)
        residual = result.states[number].memory["residual"].astype(np.float64)
        np.testing.assert_allclose(acked + residual, target, atol=1e-4 * np.abs(target).max(), err_msg=f"node {number}")


def test_all_planned_failures_have_happened(result: ChaosResult) -> None:
    rounds = {number: [int(path.stem.split("-")[0]) for path in result.targets(number)] for number in range(NODES)}
    assert 2 not in rounds[KILLED], "it was killed before it had trained"
    assert not {5, 6} & set(rounds[STOPPED])
    assert rounds[QUIET].count(10) == 2, "the killed server had sent the message once already"
    with np.load(result.folder / "book" / "taken-8.npz") as arrived:
        assert str(result.ids[FROZEN]) not in arrived
    assert f"round 8: no answer in time from node {result.ids[FROZEN]}" in result.log
    assert 9 not in rounds[STOPPED], "its ClientApp was killed before it had trained"
    assert 7 in rounds[QUIET], "it trained while its fork server was killed"
    with np.load(result.folder / "book" / "taken-9.npz") as arrived:
        assert not {str(result.ids[number]) for number in (STOPPED, KILLED)} & set(arrived)
    assert result.forked == result.warm, "processes are forked on warm nodes alone"


def rounds_with(result: ChaosResult, number: int, kind: str, least: int = 1) -> list[int]:
    """Return the rounds in which a node got at least so many bytes of a kind."""
    rows = result.last.ledger.by_round_and_node()
    return [
        server_round
        for (server_round, node), totals in rows.items()
        if node == result.ids[number] and getattr(totals, kind) >= least
    ]


def test_only_a_node_with_another_start_needs_key_frames(result: ChaosResult) -> None:
    """It gets one after the first round, and one after it lost its state; the others make the first model."""
    key_size = 4 * result.last.publisher.replica.layout.n
    keys = {number: rounds_with(result, number, "key_bytes", key_size) for number in range(NODES)}
    assert len(keys.pop(ROBBED)) == 2
    assert not any(keys.values()), keys
    assert {number: rounds_with(result, number, "key_bytes") for number in keys} == {number: [1] for number in keys}


def test_a_node_that_was_away_jumps(result: ChaosResult) -> None:
    assert rounds_with(result, STOPPED, "jump_bytes")[0] in (6, 7, 8)
    assert not rounds_with(result, QUIET, "jump_bytes"), "it missed no version"


def test_the_accuracy_is_that_of_an_undisturbed_run(result: ChaosResult, tmp_path: Path) -> None:
    defaults = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config = {**defaults, **CONFIG, "num-rounds": ROUNDS + 1, "runs-dir": str(tmp_path), "checkpoint-every": 0}
    server_app(LocalGrid(client_app, NODES, config), Context(1, 0, {}, RecordDict(), config))
    calm = [json.loads(line)["accuracy"] for line in (tmp_path / "chaos" / "rounds.jsonl").read_text().splitlines()]
    assert result.accuracy == pytest.approx(float(np.mean(calm[-4:])), abs=0.05)
    assert result.accuracy > 0.8


def test_the_ledger_agrees_with_the_sockets(result: ChaosResult) -> None:
    by_node = result.last.ledger.by_node()
    for number, (node_id, up, down) in enumerate(zip(result.ids, result.up, result.down, strict=True)):
        counted: Traffic = by_node[node_id]
        # In addition to frames: the app, once per run and once more for a node that restarted; polling, every three
        # seconds; and the names, hashes and headers of each message.
        fetched = result.bundle * (3 if number in (QUIET, FROZEN) else 4)
        framing = MESSAGE_FRAMING * (3 + ROUNDS + 2) + SECOND_FRAMING * result.seconds
        assert 0 < up - counted.uplink_bytes < framing, f"node {number}"
        assert 0 < down - counted.downlink_bytes - fetched < framing, f"node {number}"
        assert counted.dense_uplink_bytes > 50 * counted.uplink_bytes
