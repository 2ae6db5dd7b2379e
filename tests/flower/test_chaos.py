"""Any pattern of absence, loss, repetition and restart ends in the same bits, and no mass is lost."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.local_grid import Fault
from fedcomp.sync.replica import split_payload
from fedcomp.wire import codec_ids
from fedcomp.wire.frame import SECONDS, parse_single_frame
from fedcomp.wire.server_message import ack_of
from tests.flower.toy import Watching, app, checkpoint_at, floats, model, state_of, sum_of_updates

pytestmark = pytest.mark.one_flower

NODES, ROUNDS = 12, 50
FAULTS = [*Fault, *[None] * 12]


def _strategy(checkpoint: Path, inner: Watching | None = None) -> CompressedStrategy:
    # fraction_train selects 4 of 12 nodes; evaluation reaches all nodes only if a test sets it.
    inner = inner or Watching(fraction_train=1 / 3 + 1e-9, fraction_evaluate=0.0)
    uplink, downlink = fedcomp.stc(density=0.02), fedcomp.stc(density=0.05)
    return CompressedStrategy(inner, uplink=uplink, downlink=downlink, checkpoint=checkpoint_at(checkpoint))


def _bring_up_to_date(strategy: CompressedStrategy, grid: LocalGrid) -> None:
    inner = strategy.inner
    assert isinstance(inner, Watching)
    inner.fraction_evaluate, inner.min_evaluate_nodes = 1.0, 2
    for _ in range(2):  # a node that lost everything asks for a key frame first, and then gets it
        messages = strategy.configure_evaluate(strategy.round, strategy.arrays, ConfigRecord(), grid)
        strategy.aggregate_evaluate(strategy.round, grid.send_and_receive(messages))
    inner.fraction_evaluate, inner.min_evaluate_nodes = 0.0, 0


def test_fifty_rounds_of_faults_end_in_the_same_bits_and_lose_nothing(tmp_path: Path) -> None:
    random.seed(7)
    faults = random.Random(8)
    grid = LocalGrid(app(), NODES)
    strategy = _strategy(tmp_path / "checkpoint")
    forgotten: dict[int, np.ndarray[Any, Any]] = {}
    watching = strategy.inner
    assert isinstance(watching, Watching)
    initial = model()
    seen: set[Fault] = set()
    for server_round in range(ROUNDS):
        for node in range(1, NODES + 1):
            if grid.faults[node]:
                continue
            fault = faults.choice(FAULTS)
            if fault is not None:
                grid.order(node, fault)
        if server_round == ROUNDS // 2:
            # The server dies, and another one resumes from the checkpoint alone.
            strategy = _strategy(tmp_path / "checkpoint", watching)
            strategy.load(tmp_path / "checkpoint")
        before = {node: watching.acked.get(node, np.zeros(1025)).copy() for node in grid.get_node_ids()}
        pending = {node: list(grid.faults[node]) for node in grid.get_node_ids()}
        strategy.start(grid, initial, num_rounds=1)
        for node in grid.get_node_ids():
            done = pending[node][: len(pending[node]) - len(grid.faults[node])]
            seen.update(done)
            if Fault.FORGET in done:
                forgotten[node] = before[node]
    assert seen == set(Fault)
    assert strategy.round == ROUNDS

    for node in range(1, NODES + 1):
        grid.faults[node].clear()
    _bring_up_to_date(strategy, grid)

    published = floats(strategy.arrays)
    for node, context in grid.contexts.items():
        replica = state_of(context).held
        assert replica.version == strategy.version
        np.testing.assert_array_equal(replica.vector.astype(np.float64), published, err_msg=f"node {node}")
        assert replica.arrays()["norm.num_batches_tracked"] == strategy.arrays["norm.num_batches_tracked"].numpy()

    for node, context in grid.contexts.items():
        target = sum_of_updates(context) if "updates" in context.state else np.zeros(1025)
        acked = watching.acked.get(node, np.zeros(1025)) - forgotten.get(node, 0)
        state = state_of(context)
        held = state.memory.get("residual", np.zeros(1025)).astype(np.float64)
        assert not state.pending, "the message that brought the node up to date settled it"
        scale = np.abs(target).max() or 1
        np.testing.assert_allclose(acked + held, target, atol=1e-4 * scale, err_msg=f"node {node}")

    kept = strategy.publisher.memory["residual"]
    moved = published - floats(initial)
    np.testing.assert_allclose(moved + kept, watching.means, atol=1e-4 * np.abs(watching.means).max())


def test_a_server_resumed_from_an_older_checkpoint_never_forks_its_nodes(tmp_path: Path) -> None:
    random.seed(1)
    grid = LocalGrid(app(), 6)
    strategy = _strategy(tmp_path / "checkpoint", Watching(fraction_train=1.0, fraction_evaluate=0.0))
    strategy.start(grid, model(), num_rounds=3)
    old = tmp_path / "old"
    old.write_bytes((tmp_path / "checkpoint").read_bytes())
    strategy.start(grid, model(), num_rounds=4)
    ahead = {node: state_of(context).replica for node, context in grid.contexts.items()}
    assert all(replica is not None and replica.version == 6 for replica in ahead.values())

    back = _strategy(tmp_path / "checkpoint", Watching(fraction_train=0.5, fraction_evaluate=0.0))
    back.load(old)
    assert back.version == 3
    # Other nodes are sampled now, so the new version 4 differs from the version 4 that the nodes hold.
    back.start(grid, model(), num_rounds=6)
    inner = back.inner
    assert isinstance(inner, Watching)
    _bring_up_to_date(back, grid)
    published = floats(back.arrays)
    for context in grid.contexts.values():
        replica = state_of(context).held
        np.testing.assert_array_equal(replica.vector.astype(np.float64), published)


@pytest.mark.parametrize("fault", list(Fault))
def test_the_next_message_settles_a_single_fault(fault: Fault, tmp_path: Path) -> None:
    grid = LocalGrid(app(), 2)
    strategy = _strategy(tmp_path / "checkpoint", Watching(fraction_train=1.0, fraction_evaluate=0.0))
    strategy.start(grid, model(), num_rounds=2)
    watching = strategy.inner
    assert isinstance(watching, Watching)
    grid.order(1, fault)
    forgotten = watching.acked[1].copy() if fault is Fault.FORGET else 0
    strategy.start(grid, model(), num_rounds=3)
    context = grid.contexts[1]
    state = state_of(context)
    target = sum_of_updates(context)
    # The server accepted the last update, but the node does not know it yet.
    assert ack_of(state.pending_number, state.pending) == strategy.publisher.nodes[1].acked
    np.testing.assert_allclose(
        watching.acked[1] - forgotten + state.memory["residual"], target, atol=1e-4 * np.abs(target).max()
    )


def test_the_pending_update_plus_the_residual_is_the_asked_mass() -> None:
    grid = LocalGrid(app(), 2)
    strategy = CompressedStrategy(Watching(fraction_train=1.0, fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1))
    grid.order(1, Fault.LOSE_REPLY)
    strategy.start(grid, model(), num_rounds=1)
    context = grid.contexts[1]
    state = state_of(context)
    frame = parse_single_frame(state.pending)
    layout = state.held.layout
    body, _ = split_payload(frame, frame.payload[SECONDS.size :], layout, b"")
    sent = codec_ids.codec_by_id(frame.codec).decode(body, n=layout.n).dense()
    target = sum_of_updates(context)
    np.testing.assert_allclose(sent + state.memory["residual"], target, atol=1e-6)
