"""Training without rounds on real processes: a frozen node holds nobody up, and a killed one loses nothing."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from deploy.federation import Federation
from deploy.program import wait_until
from fedcomp.flower.client.state_folder import StateFolder
from fedcomp.flower.server.model.server_state import ServerState
from fedcomp.sync.updates import decode_update
from fedcomp.wire.frame import parse_single_frame
from fedcomp.wire.server_message import ack_of
from tests.deploy.chaos.server import Watching
from tests.deploy.live_federation import start_node, stop_node, watching_app

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower's bundling uses it
]

NODES, VERSIONS, PATIENCE_S = 3, 14, 240.0
QUIET, KILLED, FROZEN = range(NODES)
CONFIG: dict[str, Any] = {
    "run-name": "asynchronous",
    "mode": "async(buffer=1, staleness=100, exponent=0.0)",  # late updates count whole, so that their sum can be checked
    "num-rounds": VERSIONS,
    "partition": "iid()",
    "strategy": "watching",
    "fraction-train": 1.0,
    "local-steps": 200,
    "learning-rate": 0.05,
    "uplink": "stc(density=0.05)",
    "downlink": "stc(density=0.05)",
    "device": "cpu",
    "checkpoint-every": 1,
    "round-timeout": 60.0,
    "min-nodes": NODES,
}


@pytest.mark.nightly
def test_a_frozen_node_holds_nobody_up_and_a_killed_one_loses_nothing(tmp_path: Path) -> None:
    book, run = tmp_path / "book", tmp_path / "runs" / "asynchronous"
    app = watching_app(tmp_path / "app")

    def version() -> int:
        path = run / "rounds.jsonl"
        return len(path.read_text().splitlines()) - 1 if path.exists() else -1

    def trainings(node: int, suffix: str) -> int:
        return len(list((book / f"node-{node}").glob(suffix)))

    def wait(ready: Callable[[], object], what: str) -> None:
        assert wait_until(ready, PATIENCE_S), f"waited {PATIENCE_S} s for {what}"

    with Federation(tmp_path / "federation", NODES, env={"CHAOS_BOOK": str(book)}) as federation:
        federation.start()
        running = federation.run(app, {**CONFIG, "runs-dir": str(tmp_path / "runs")})
        wait(lambda: trainings(FROZEN, "*.begun") >= 2, "a second training")
        federation.nodes[FROZEN].program.signal(signal.SIGSTOP)
        frozen_at = version()
        wait(lambda: version() >= frozen_at + 4, "four versions without the frozen node")
        federation.nodes[FROZEN].program.signal(signal.SIGCONT)
        begun = trainings(KILLED, "*.begun")
        wait(lambda: trainings(KILLED, "*.begun") > begun, "another training of the node to kill")
        federation.nodes[KILLED].program.signal(signal.SIGKILL)
        wait(lambda: not federation.nodes[KILLED].program.processes(), "the end of a node")
        start_node(federation, KILLED)
        assert running.wait(PATIENCE_S) == "finished:completed", running.log()
        checkpoint = ServerState.load(run / "checkpoint", Watching())
        for number in range(NODES):
            stop_node(federation, number)
        replica = checkpoint.publisher.replica
        assert replica.version == VERSIONS

        for number, node in enumerate(federation.nodes):
            files = sorted((book / f"node-{number}").glob("*.npy"))
            target = np.sum([np.load(path) for path in files], axis=0)
            arrived = np.zeros_like(target)
            for path in book.glob("taken-*.npz"):
                with np.load(path) as taken:
                    arrived += taken.get(node.node_id, 0)
            assert arrived.any(), f"node {number}"
            with StateFolder(node.folder / "state", RecordDict()) as store:
                state = store.load(checkpoint.publisher.training_id).subscriber
            held = state.memory["residual"].astype(np.float64)
            accepted = checkpoint.publisher.nodes[int(node.node_id)].acked
            if state.pending and ack_of(state.pending_number, state.pending) != accepted:
                frame = parse_single_frame(state.pending)  # an update that came too late, and is still the node's
                held += decode_update(frame, replica).change.dense()
            tolerance = 1e-4 * np.abs(target).max()
            np.testing.assert_allclose(arrived + held, target, atol=tolerance, err_msg=f"node {number}")
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert rounds[-1]["accuracy"] > 0.7
