"""Servers that come back from old checkpoints, and devices that take part in two trainings, whatever the clock says."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import UserConfig
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import EF21, CompressedStrategy, LocalGrid
from tests.flower.toy import app, checkpoint_at, client_state_of, floats, model, state_of, sum_of_updates

NODES = 4
STC = fedcomp.stc(density=0.1)


def build(checkpoint: Path | None = None, uplink: fedcomp.Compressor = STC) -> CompressedStrategy:
    inner = EF21(fraction_evaluate=0.0) if uplink.name == "ef21" else FedAvg(fraction_evaluate=0.0)
    return CompressedStrategy(inner, uplink=uplink, downlink=STC, checkpoint=checkpoint_at(checkpoint))


def together(strategy: CompressedStrategy, grid: LocalGrid) -> None:
    """Check that the nodes hold the version of the last round, which is the one before the published one."""
    assert {state_of(context).held.version for context in grid.contexts.values()} == {strategy.version - 1}


@pytest.mark.parametrize("uplink", [STC, fedcomp.ef21(density=0.1)], ids=str)
def test_nodes_follow_a_server_that_comes_back_from_an_old_checkpoint_of_any_time(
    uplink: fedcomp.Compressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old checkpoint, and a clock behind that of the server which has run since."""
    grid, old = LocalGrid(app(), NODES), tmp_path / "old"
    first = build(old, uplink)
    first.start(grid, model(), num_rounds=2)
    monkeypatch.setattr("time.time_ns", lambda: 2**62)
    newer = build(uplink=uplink)
    newer.load(old)
    newer.start(grid, newer.arrays, num_rounds=3)
    together(newer, grid)
    monkeypatch.setattr("time.time_ns", lambda: 1)
    last = build(uplink=uplink)
    last.load(old)
    last.start(grid, last.arrays, num_rounds=4)
    together(last, grid)
    assert last.ledger.failed == 0
    assert last.ledger.refused <= NODES, "each node may miss one round, and then gets a key frame"
    assert last.version >= (4 if uplink.name == "ef21" else 5), "a round that begins new estimates has no result either"


def test_two_trainings_of_one_model_on_one_device_are_told_apart_after_a_restart(tmp_path: Path) -> None:
    def in_files(node: int) -> UserConfig:
        return {"state-dir": str(tmp_path / f"node-{node}")}

    one, two = build(), build()
    for number in range(1, 5):
        for strategy in (one, two):
            grid = LocalGrid(app(), NODES, node_config=in_files)  # the device restarts: the contexts are new
            strategy.start(grid, model(), num_rounds=1)
            assert strategy.version == number
    for strategy in (one, two):
        assert (strategy.ledger.refused, strategy.ledger.failed) == (0, 0)
        assert all(state.version == 3 for state in strategy.nodes.values())


def test_a_reply_to_a_message_from_before_a_restart_does_not_count(tmp_path: Path) -> None:
    """The server has told the node since then that its update did not count."""
    grid, strategy = LocalGrid(app(), NODES), build(tmp_path / "checkpoint")
    strategy.start(grid, model(), num_rounds=1)
    with_old = build()
    with_old.load(tmp_path / "checkpoint")
    for node, context in grid.contexts.items():
        with pytest.raises(fedcomp.FedcompError, match="the newest to this node is 0"):
            with_old.publisher.parse_reply(node, client_state_of(context).subscriber.pending)
    with_old.start(grid, with_old.arrays, num_rounds=2)
    assert with_old.ledger.refused == 0
    moved = floats(with_old.arrays) - floats(model()) + with_old.publisher.memory["residual"]
    weights = {node: 1 + node % 3 for node in grid.contexts}
    expected = sum(
        weights[node] * (sum_of_updates(context) - state_of(context).memory["residual"])
        for node, context in grid.contexts.items()
    ) / sum(weights.values())
    np.testing.assert_allclose(moved, expected, atol=1e-4)
