"""Nodes that share a process send the same bytes and end in the same bits as separate nodes."""

import random

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.client.in_memory import DecodeCache, InMemoryState
from fedcomp.flower.local_grid import Fault
from fedcomp.sync.ledger import Traffic
from fedcomp.sync.replica import start_replica
from fedcomp.wire.codec_ids import codec_id
from fedcomp.wire.layout import layout_of
from tests.flower.toy import Arrays, Watching, app, arrays_of, model, state_of, training

NODES, ROUNDS = 6, 14


def _run(uplink: str, downlink: str, *, in_memory: bool) -> tuple[CompressedStrategy, LocalGrid]:
    random.seed(3)
    faults = random.Random(4)
    grid = LocalGrid(app(), NODES, in_memory=in_memory)
    inner = Watching(fraction_train=0.5, fraction_evaluate=0.3)
    strategy = CompressedStrategy(inner, uplink=fedcomp.parse(uplink), downlink=fedcomp.parse(downlink))
    for server_round in range(ROUNDS):
        for node in grid.get_node_ids():
            if faults.random() < 0.1:
                grid.order(node, faults.choice(list(Fault)))
        strategy.start(grid, model() if server_round == 0 else strategy.arrays, num_rounds=1)
    return strategy, grid


def _bytes(totals: Traffic) -> tuple[int, ...]:
    return totals.uplink_bytes, totals.downlink_bytes, totals.catch_up_bytes, totals.dense_bytes, totals.refused


@pytest.mark.sample(1)
@pytest.mark.one_flower
@pytest.mark.parametrize(
    ("uplink", "downlink"),
    [("stc(density=0.02)", "stc(density=0.05)"), ("dgc(density=0.02)", "dense()"), ("dense()", "qsgd(levels=4)")],
)
def test_bytes_models_and_memories_equal_those_of_separate_nodes(uplink: str, downlink: str) -> None:
    (apart, own), (together, sharing) = (_run(uplink, downlink, in_memory=mode) for mode in (False, True))
    assert _bytes(apart.ledger.total()) == _bytes(together.ledger.total())
    assert apart.ledger.total().refused > 0, "the faults had an effect"
    for name, array in arrays_of(apart.arrays).items():
        np.testing.assert_array_equal(array, together.arrays[name].numpy())
    for node, context in own.contexts.items():
        alone, shared = state_of(context), state_of(sharing.contexts[node])
        assert (alone.replica is None) == (shared.replica is None)
        if alone.replica is not None and shared.replica is not None:
            np.testing.assert_array_equal(alone.replica.vector, shared.replica.vector)
        assert alone.memory.keys() == shared.memory.keys()
        for key, vector in alone.memory.items():
            np.testing.assert_array_equal(vector, shared.memory[key])


def test_a_step_is_computed_once_and_its_seconds_count_for_each_node() -> None:
    arrays = {"w": np.zeros(100, np.float32)}
    mine, yours = (start_replica(layout_of(arrays), arrays) for _ in range(2))
    compressor = fedcomp.stc(density=0.1)
    body, _ = compressor.encode(np.arange(100, dtype=np.float32), compressor.init(100))
    frame = mine.delta(codec_id(compressor.entropy), body, b"")[0]
    shared = DecodeCache()
    first = shared.step(mine, frame)
    assert shared.saved_seconds == 0
    assert shared.step(yours, frame) is first
    assert shared.saved_seconds > 0
    np.testing.assert_array_equal(mine.advance(frame, shared).vector, yours.advance(frame).vector)


def test_a_key_frame_is_decoded_once_and_every_node_owns_its_vector() -> None:
    arrays = {"w": np.arange(100, dtype=np.float32)}
    frame = start_replica(layout_of(arrays), arrays).key_frame()
    shared = DecodeCache()
    first = shared.begin(frame)
    assert shared.saved_seconds == 0
    first.vector[:] = 7
    second = shared.begin(frame)
    assert shared.saved_seconds > 0
    np.testing.assert_array_equal(second.vector, arrays["w"])
    assert (second.version, second.fingerprint) == (first.version, first.fingerprint)
    assert first.origin is not None
    assert second.origin is not None
    assert second.origin.base is first.origin.base, "nodes share what does not change"
    assert not np.shares_memory(second.origin.counts, first.origin.counts)


def test_the_grid_reports_the_seconds_of_each_node_per_round() -> None:
    grid = LocalGrid(app(), NODES, in_memory=True)
    CompressedStrategy(Watching(fraction_train=1.0, fraction_evaluate=0.0)).start(grid, model(), num_rounds=3)
    training = [nodes for nodes in grid.seconds if nodes]  # the batches between them are evaluations, of no nodes
    assert [set(nodes) for nodes in training] == 3 * [set(range(1, NODES + 1))]
    assert all(min(nodes.values()) > 0 for nodes in training)


def test_a_node_whose_app_raises_continues_from_the_followed_frames() -> None:
    calls = []

    def train(given: Arrays, context: Context, server_round: int) -> Arrays:
        calls.append(context.node_id)
        if len(calls) == 3:
            raise RuntimeError("as ordered")
        rng = np.random.default_rng([context.node_id, server_round])
        return {name: array + rng.standard_normal(array.shape, array.dtype) for name, array in given.items()}

    published = []
    for in_memory in (False, True):
        calls.clear()
        random.seed(1)
        grid = LocalGrid(training(train), 2, in_memory=in_memory)
        strategy = CompressedStrategy(
            FedAvg(fraction_train=1.0, fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1)
        )
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(50, np.float32))}), num_rounds=6)
        published.append(strategy.arrays["w"].numpy())
    np.testing.assert_array_equal(published[0], published[1])


def test_later_changes_do_not_affect_a_snapshot() -> None:
    state = InMemoryState(DecodeCache())
    state.client.subscriber.memory["residual"] = np.ones(2, np.float32)
    before, same = state.snapshot(), state.copy()
    state.client.subscriber.memory["residual"][0] = 5
    assert before.client.subscriber.memory["residual"].tolist() == [1, 1]
    assert same.client.subscriber.memory["residual"].tolist() == [5, 1]


def test_an_app_that_changes_its_model_affects_no_other_node() -> None:
    arrays = {"w": np.zeros(4, np.float32)}
    replica, shared = start_replica(layout_of(arrays), arrays), DecodeCache()
    mine, yours = shared.plain(replica), shared.plain(replica)
    mine["w"].data = Array(np.ones(4, np.float32)).data
    assert mine["w"].numpy().tolist() == [1, 1, 1, 1]
    assert yours["w"].numpy().tolist() == [0, 0, 0, 0]


def test_seconds_of_a_node_that_raised_do_not_count_for_the_next() -> None:
    def train(given: Arrays, context: Context, _: int) -> Arrays:
        assert isinstance(context.state, InMemoryState)
        if context.node_id == 1:
            context.state.cache.saved_seconds = 1000.0
            raise RuntimeError("as ordered")
        return given

    grid = LocalGrid(training(train), 2, in_memory=True)
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    list(grid.send_and_receive([Message(content, node, "train") for node in (1, 2)]))
    assert grid.seconds[0].keys() == {2}
    assert grid.seconds[0][2] < 100
