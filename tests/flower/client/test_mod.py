"""The node's side: its state between messages, also damaged or of another model."""

from typing import cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, records
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.context_store import ContextStore
from fedcomp.flower.local_grid import Fault
from fedcomp.sync import Subscriber
from fedcomp.sync.replica import start_replica
from fedcomp.wire.frame import Frame, Kind
from fedcomp.wire.layout import layout_of
from fedcomp.wire.server_message import Ack, ServerMessage
from tests.flower.toy import app, floats, model, state_of, training


def _strategy(uplink: fedcomp.Compressor | None = None) -> CompressedStrategy:
    inner = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    return CompressedStrategy(inner, uplink=uplink or fedcomp.stc(density=0.1))


def test_a_saved_state_comes_back_from_the_records() -> None:
    arrays = {"w": np.arange(5, dtype=np.float32), "steps": np.array(7)}
    records = RecordDict({"mine": ConfigRecord({"a": 1})})
    sent = Frame(Kind.UPDATE, 1, 0, 3, 3, 1, 2, 2**60, b"payload").to_bytes()
    state = Subscriber(
        replica=start_replica(layout_of(arrays), arrays, version=3),
        memory={"residual": np.full(5, 0.5, np.float32)},
        number=2**60,
        pending=sent,
        pending_number=2**60,
        uplink="stc(density=0.1)",
    )
    whole = ClientState(
        state,
        answer_key="arrays",
        local={"head": Array(np.ones(2))},
        answer={"m": MetricRecord({"loss": 1.0})},
    )
    ContextStore(records).save(whole)
    back = ContextStore(records).load(0)
    again = back.subscriber
    assert again.replica is not None
    np.testing.assert_array_equal(again.replica.vector, state.held.vector)
    assert (again.replica.version, again.replica.fingerprint) == (3, state.held.fingerprint)
    assert again.replica.arrays()["steps"] == 7
    np.testing.assert_array_equal(again.memory["residual"], state.memory["residual"])
    again.memory["residual"] += 1  # the arrays are writable
    assert (again.number, again.pending, again.uplink) == (state.number, sent, state.uplink)
    assert back.local["head"].numpy().tolist() == [1, 1]
    assert back.answer["m"]["loss"] == 1.0
    assert "mine" in records, "the app's own records do not change"
    ContextStore(records).save(ClientState())
    assert ContextStore(records).load(0).answer == {}


@pytest.mark.parametrize("damage", ["vector", "layout", "exact", "pending", "memory.residual", "plain"])
def test_a_damaged_state_counts_as_no_state(damage: str) -> None:
    grid = LocalGrid(app(), 2)
    strategy = _strategy()
    strategy.start(grid, model(), num_rounds=2)
    records = grid.contexts[1].state
    if damage == "plain":
        records["fedcomp.plain"] = ConfigRecord({"json": "{"})
    else:
        arrays = dict(records.array_records["fedcomp"])
        whole = arrays[damage].data
        dtype = "float32" if damage in ("vector", "memory.residual") else "uint8"
        cut = whole[:-4]
        arrays[damage] = Array(dtype, (len(cut) // np.dtype(dtype).itemsize,), "fedcomp.state/1", cut)
        records["fedcomp"] = ArrayRecord(arrays)
    assert ContextStore(records).load(0) == ClientState()
    strategy.start(grid, model(), num_rounds=2)  # one refused reply, then a key frame
    assert strategy.ledger.by_node()[1].refused == 1
    assert state_of(grid.contexts[1]).held.version == 3


def test_the_uplink_may_change_between_rounds_and_the_residual_is_kept() -> None:
    grid = LocalGrid(app(), 2)
    strategy = _strategy()
    strategy.start(grid, model(), num_rounds=2)
    before = state_of(grid.contexts[1]).memory["residual"].copy()
    strategy.uplink = fedcomp.dense()
    strategy.start(grid, model(), num_rounds=1)
    np.testing.assert_array_equal(state_of(grid.contexts[1]).memory["residual"], before)
    strategy.uplink = fedcomp.stc(density=0.5, order="interleaved")
    strategy.start(grid, model(), num_rounds=1)
    assert not np.array_equal(state_of(grid.contexts[1]).memory["residual"], before)
    assert strategy.ledger.refused == 0


def test_a_lost_dense_uplink_is_lost_as_in_plain_flower() -> None:
    grid = LocalGrid(app(), 2)
    strategy = _strategy(fedcomp.dense())
    grid.order(1, Fault.LOSE_REPLY)
    strategy.start(grid, model(), num_rounds=2)
    assert state_of(grid.contexts[1]).memory == {}


def test_a_key_frame_of_another_model_empties_the_memory() -> None:
    grid = LocalGrid(app(), 2)
    _strategy().start(grid, model(), num_rounds=2)
    for context in grid.contexts.values():
        del context.state["updates"]  # the toy app's sum has the old length
    other = _strategy()
    result = other.start(grid, model((8, 3)), num_rounds=2)
    state = state_of(grid.contexts[1])
    assert state.held.layout.n == 27
    assert len(state.memory["residual"]) == 27
    assert other.ledger.refused == 0
    assert floats(result.arrays).size == 27


def test_an_unknown_uplink_is_an_error_that_names_it() -> None:
    grid = LocalGrid(app(), 2)
    strategy = _strategy()
    strategy.start(grid, model(), num_rounds=1)
    published = strategy.publisher.replica
    delta = strategy.publisher.history.frames()[-1].to_bytes()
    ask = ServerMessage(2**62, Ack(), published.version, published.fingerprint, 0, "magic(x=1)", (delta,))
    content = RecordDict({"arrays": records.pack(ask.to_bytes()), "config": ConfigRecord({"server-round": 2})})
    (reply,) = grid.send_and_receive([Message(content, 1, "train")])
    assert reply.has_error()
    assert "magic" in str(reply.error.reason)


def test_other_arrays_travel_unchanged_and_are_in_the_ledger() -> None:
    extra = ClientApp(mods=[CompressionMod()])
    seen = []

    @extra.train()
    def train(message: Message, context: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        seen.append(cast(ArrayRecord, message.content["control"])["c"].numpy().tolist())
        trained = ArrayRecord({name: Array(np.asarray(array.numpy() + 1)) for name, array in arrays.items()})
        content = RecordDict({"arrays": trained, "m": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    class Scaffold(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):  # type: ignore[no-untyped-def]
            for message in super().configure_train(server_round, arrays, config, grid):
                message.content["control"] = ArrayRecord({"c": Array(np.array([1.0, 2.0]))})
                yield message

    strategy = CompressedStrategy(Scaffold(fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1))
    bare = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1))
    strategy.start(LocalGrid(extra, 2), model(), num_rounds=1)
    bare.start(LocalGrid(app(), 2), model(), num_rounds=1)
    assert seen == [[1.0, 2.0], [1.0, 2.0]]
    control = len(Array(np.array([1.0, 2.0])).data)
    assert strategy.ledger.downlink_bytes == bare.ledger.downlink_bytes + 2 * control
    assert strategy.ledger.dense_downlink_bytes == bare.ledger.dense_downlink_bytes + 2 * control


def test_random_draws_follow_the_partition_and_not_the_node_id() -> None:
    client_app = training(lambda given, context, _: {name: array + 1 for name, array in given.items()})
    strategy = _strategy(fedcomp.randk(density=0.1))
    grid = LocalGrid(client_app, 3, node_config=lambda node: {"partition-id": node // 2})
    strategy.start(grid, model(), num_rounds=1)
    first, second, third = (state_of(grid.contexts[node]).memory["residual"] for node in (1, 2, 3))
    assert not np.array_equal(first, second)
    assert np.array_equal(second, third)


def test_a_partition_id_may_be_a_text_or_infinite() -> None:
    client_app = training(lambda given, context, _: {name: array + 1 for name, array in given.items()})
    names: list[str | float] = ["south", "north", "north", float("inf")]
    strategy = _strategy(fedcomp.randk(density=0.1))
    grid = LocalGrid(client_app, 4, node_config=lambda node: {"partition-id": names[node - 1]})
    strategy.start(grid, model(), num_rounds=1)
    south, north, again, infinite = (state_of(grid.contexts[node]).memory["residual"] for node in (1, 2, 3, 4))
    assert np.array_equal(north, again)
    assert not np.array_equal(south, north)
    assert not np.array_equal(infinite, north)
