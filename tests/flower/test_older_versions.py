"""A run of fedcomp 0.1.0, server and nodes, is resumed by this version without a key frame and without a lost update."""

import shutil
from pathlib import Path

import numpy as np
from flwr.app import RecordDict

import fedcomp
from fedcomp.flower import EF21, CompressedStrategy, LocalGrid
from fedcomp.flower.client.state_folder import StateFolder
from fedcomp.wire.frame import Kind, parse_single_frame
from tests.flower.toy import app, state_of

OLD = Path(__file__).resolve().parents[1] / "golden" / "ef21_run"
ROUNDS, VERSION, EPOCH, TRAINING_ID = 7, 6, 1795347911566599, 0x724709169215754D


def strategy() -> CompressedStrategy:
    inner = EF21(fraction_evaluate=0.0)
    return CompressedStrategy(inner, uplink=fedcomp.parse("ef21(density=0.2)"), downlink=fedcomp.dense(), seed=3)


def test_a_checkpoint_of_0_1_loads() -> None:
    resumed = strategy()
    resumed.load(OLD / "checkpoint")
    publisher = resumed.publisher
    assert (resumed.round, resumed.version, publisher.epoch) == (ROUNDS, VERSION, EPOCH)
    assert publisher.training_id == TRAINING_ID
    assert {node: record.summed for node, record in publisher.nodes.items()} == {1: True, 2: True}
    assert resumed.ledger.refused == 1
    assert {node: state.heard for node, state in resumed.nodes.items()} == {1: ROUNDS, 2: ROUNDS}


def test_the_state_of_a_node_of_0_1_loads_with_its_epoch_and_its_pending_update(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "run")
    with StateFolder(tmp_path / "run" / "node-1", RecordDict()) as folder:
        subscriber = folder.load(TRAINING_ID).subscriber
    assert subscriber.uplink == "ef21(density=0.2)"
    assert subscriber.memory["estimate_epoch"].tolist() == [EPOCH]
    assert parse_single_frame(subscriber.pending).kind is Kind.UPDATE
    assert subscriber.held.version == VERSION - 1


def test_a_run_of_0_1_continues(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "run")
    resumed = strategy()
    resumed.load(tmp_path / "run" / "checkpoint")
    before = resumed.ledger.total()
    grid = LocalGrid(app(), 2, node_config=lambda node: {"state-dir": str(tmp_path / "run" / f"node-{node}")})
    resumed.start(grid, resumed.arrays, num_rounds=3)
    assert (resumed.version, resumed.publisher.epoch) == (VERSION + 3, EPOCH)
    assert resumed.ledger.refused == before.refused
    assert resumed.ledger.catch_up_bytes == before.catch_up_bytes, "no key frame"
    inner = resumed.inner
    assert isinstance(inner, EF21)
    estimates = [state_of(context).memory["estimate"] for context in grid.contexts.values()]
    server = np.concatenate([inner.estimate[name].ravel() for name in ("layer.weight", "layer.bias")])
    np.testing.assert_allclose(server, np.sum(estimates, axis=0, dtype=np.float64), atol=1e-6)
