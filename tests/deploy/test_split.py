"""Split learning over real processes and sockets: a node that is killed with SIGKILL in the middle of a round loses nothing."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deploy.federation import Federation
from fedcomp.flower import LocalGrid
from fedcomp.flower.split.state import FOLDER
from tests.deploy.live_federation import app_of, start_node
from tests.deploy.split_app.app import client_app, train

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower's bundling uses it
]
PATIENCE_S = 400.0
MESSAGES = 2 * 5
"""Two rounds of four batches, whose fifth message brings the weights."""


def _wait(ready: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.02)


def test_a_killed_node_continues_where_it_was_and_no_bit_is_lost(tmp_path: Path) -> None:
    book = tmp_path / "book"
    app = app_of(Path(__file__).parent / "split_app", "app:server_app", "app:client_app", tmp_path / "app")

    def begun() -> int:
        return len(list((book / "node-0").glob("*.begun")))

    with Federation(tmp_path / "federation", 1, env={"SPLIT_BOOK": str(book)}) as federation:
        federation.start()
        run = federation.run(app, {})
        _wait((book / "node-0" / "held").exists, "the third answer, which is saved and not sent")
        [node] = federation.nodes
        node.program.signal(signal.SIGKILL)
        _wait(lambda: not node.program.processes(), "the end of the node that was killed")
        start_node(federation, 0)
        assert run.wait(PATIENCE_S) == "finished:completed", run.log()

    model, training = train(LocalGrid(client_app, 1))
    with np.load(book / "model.npz") as trained:
        for name, tensor in model.state_dict().items():
            assert trained[name].tobytes() == tensor.numpy().tobytes(), name
    traffic = json.loads((book / "traffic.json").read_text())
    assert traffic["dense_uplink_bytes"] == training.traffic.dense_uplink_bytes, "each batch counts once"
    assert traffic["first_bytes"] == training.traffic.first_bytes, "no sample had to be sent in full again"
    assert traffic["downlink_bytes"] > training.traffic.downlink_bytes, "some messages were repeated"
    assert begun() >= MESSAGES
    assert (node.folder / "state" / FOLDER / "rows").stat().st_size == 24 * 16 * 4 * 4 * 4
