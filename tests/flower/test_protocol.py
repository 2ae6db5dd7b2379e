"""The messages of a federation, and replies that are late or doubled."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.records import dense_size
from fedcomp.quantized import Steps
from fedcomp.sync import Replica
from fedcomp.wire import server_message
from fedcomp.wire.frame import Frame, Kind
from tests.flower.attacks import copied
from tests.flower.toy import Arrays, Recording, Watching, app, floats, model, state_of, training


class Tapped(LocalGrid):
    """A grid that records its traffic, and can change replies."""

    def __init__(
        self,
        num_nodes: int,
        change: Callable[[Message], list[Message]] | None = None,
        client_app: ClientApp | None = None,
    ) -> None:
        super().__init__(client_app or app(), num_nodes)
        self.sent: list[Message] = []
        self.change = change

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages = list(messages)
        self.sent += messages
        replies = list(super().send_and_receive(messages, timeout=timeout))
        return [answer for reply in replies for answer in (self.change(reply) if self.change else [reply])]


def _wrapped(**settings: float) -> CompressedStrategy:
    inner = FedAvg(**({"fraction_train": 1.0, "fraction_evaluate": 0.0} | settings))  # type: ignore[arg-type]
    return CompressedStrategy(inner, uplink=fedcomp.stc(density=0.05), downlink=fedcomp.stc(density=0.05))


def _data(message: Message) -> bytes:
    (record,) = message.content.array_records.values()
    return record["fedcomp"].data


def test_one_message_carries_one_array_and_plain_flower_refuses_it() -> None:
    grid = Tapped(3)
    _wrapped().start(grid, model(), num_rounds=2)
    for message in grid.sent:
        (record,) = message.content.array_records.values()
        (array,) = record.values()
        with pytest.raises(TypeError):
            array.numpy()


def test_a_version_is_encoded_once_and_every_node_gets_the_same_bytes() -> None:
    grid = Tapped(5)
    strategy = _wrapped()
    strategy.start(grid, model(), num_rounds=4)
    deltas: dict[int, set[bytes]] = {}
    for message in grid.sent[5:]:
        _, frames = server_message.parse_server_message(_data(message))
        for frame in frames:
            assert frame.kind is Kind.DELTA
            deltas.setdefault(frame.version, set()).add(frame.to_bytes())
    assert {version: len(found) for version, found in deltas.items()} == {1: 1, 2: 1, 3: 1}


def test_the_ledger_sums_the_bytes_of_all_messages() -> None:
    replies: list[int] = []
    dense = sum(len(array.data) for array in model().values())

    def count(reply: Message) -> list[Message]:
        replies.append(len(_data(reply)))
        return [reply]

    grid = Tapped(4, count)
    strategy = _wrapped(fraction_evaluate=0.5)
    random.seed(0)
    strategy.start(grid, model(), num_rounds=3)
    ledger = strategy.ledger
    assert ledger.uplink_bytes == sum(replies)
    sent = [len(_data(message)) for message in grid.sent]
    assert ledger.downlink_bytes == sum(sent)
    assert ledger.dense_downlink_bytes == dense * len(grid.sent)
    assert ledger.dense_uplink_bytes == dense * 4 * 3
    assert ledger.dense_bytes == ledger.dense_uplink_bytes + ledger.dense_downlink_bytes
    assert sum(part.uplink_bytes for part in ledger.by_node().values()) == ledger.uplink_bytes
    assert sum(ledger.of_round(number).downlink_bytes for number in (1, 2, 3)) == ledger.downlink_bytes
    first = ledger.of_round(1)
    assert first.first_model_bytes > 4 * 4 * 1025, "the first contact needs the whole model"
    assert first.catch_up_bytes == 0
    assert 0 < ledger.catch_up_bytes + ledger.first_model_bytes < ledger.downlink_bytes
    assert ledger.encode_seconds > 0
    assert ledger.decode_seconds > 0


@pytest.mark.parametrize(("downlink", "shared"), [("stc(density=0.3)", True), ("eden(bits=1)", False)])
def test_the_ledger_counts_frames_by_their_kinds(downlink: str, shared: bool) -> None:
    grid = Tapped(6, client_app=app(start=lambda _: model()) if shared else None)
    strategy = CompressedStrategy(
        FedAvg(fraction_train=0.34, fraction_evaluate=0.0), downlink=fedcomp.parse(downlink), shared_start=shared
    )
    random.seed(0)
    strategy.start(grid, model(), num_rounds=12)
    found: Counter[str] = Counter()
    for message in grid.sent:
        _, frames = server_message.parse_server_message(_data(message))
        deltas = sum(frame.kind is Kind.DELTA for frame in frames)
        for frame in frames:
            name = "replay" if deltas > 1 and frame.kind is Kind.DELTA else frame.kind.name.lower()
            found[name] += frame.size
    ledger = strategy.ledger
    counted = {"delta": ledger.delta_bytes, "replay": ledger.replay_bytes, "jump": ledger.jump_bytes}
    assert counted == {name: found[name] for name in counted}
    assert ledger.key_bytes == found["key"] + found["start"]
    assert (found["start"] > 0) == shared
    assert (found["jump"] > 0, found["replay"] > 0) == (shared, not shared), "STC is on the grid, EDEN is not"
    assert ledger.delta_bytes > 0
    heads = ledger.downlink_bytes - sum(counted.values()) - ledger.key_bytes
    assert 0 < heads < 120 * len(grid.sent)


class OftenAndSeldom(FedAvg):
    """Trains node 1 in every round, node 2 in the first and the last."""

    def __init__(self, last: int) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.last = last

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        config["server-round"] = server_round
        record = RecordDict({"arrays": arrays, "config": config})
        return [Message(record, node, "train") for node in ((1, 2) if server_round in (1, self.last) else (1,))]


def test_an_absent_node_catches_up_and_a_present_one_does_not() -> None:
    strategy = CompressedStrategy(OftenAndSeldom(last=8), downlink=fedcomp.stc(density=0.01))
    strategy.start(Tapped(2), model(), num_rounds=8)
    last = {node: strategy.ledger.by_round_and_node()[8, node] for node in (1, 2)}
    assert last[1].catch_up_bytes == 0
    assert 0 < last[2].catch_up_bytes < 7 * (last[1].downlink_bytes + 60)
    assert last[2].downlink_bytes == last[1].downlink_bytes + last[2].catch_up_bytes


def test_a_node_that_missed_more_than_the_server_keeps_jumps_from_the_start() -> None:
    grid = Tapped(2)
    strategy = CompressedStrategy(OftenAndSeldom(last=40), downlink=fedcomp.stc(density=0.5))
    strategy.start(grid, model(), num_rounds=40)
    _, frames = server_message.parse_server_message(_data(grid.sent[-1]))
    assert [frame.kind for frame in frames] == [Kind.JUMP]
    assert frames[0].base_version == 0
    assert state_of(grid.contexts[2]).held.version == 39


def test_a_round_makes_its_jumps_from_the_newest_start_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the messages: the sum of one jump is part of the next one's."""
    begun: dict[int, list[int]] = {}
    make = Replica.jump_frame

    def jump_frame(replica: Replica, place: tuple[int, int], steps: Steps, *, exact: bool) -> Frame:
        begun.setdefault(replica.version, []).append(place[0])
        return make(replica, place, steps, exact=exact)

    monkeypatch.setattr(Replica, "jump_frame", jump_frame)
    strategy = _wrapped(fraction_train=0.3)
    strategy.start(Tapped(20), model(), num_rounds=12)
    # A jump from the origin, version 0, has a rule of its own.
    jumps = [[version for version in starts if version] for starts in begun.values()]
    assert max(map(len, jumps)) > 2
    assert all(starts == sorted(starts, reverse=True) for starts in jumps)


def test_an_update_counts_once_however_often_it_arrives() -> None:
    twice, once = Tapped(3, lambda reply: [reply, copied(reply), copied(reply)]), Tapped(3)
    strategies = _wrapped(), _wrapped()
    for strategy, grid in zip(strategies, (twice, once), strict=True):
        strategy.start(grid, model(), num_rounds=3)
    np.testing.assert_array_equal(floats(strategies[0].arrays), floats(strategies[1].arrays))
    assert strategies[0].ledger.refused == 2 * 3 * 3


def test_a_late_reply_is_dropped_because_its_node_has_taken_the_mass_back() -> None:
    held: list[Message] = []

    def late(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id != 1:
            return [reply]
        held.append(copied(reply))
        return [held[-2]] if len(held) > 1 else []

    grid = Tapped(3, late)
    strategy = CompressedStrategy(Watching(fraction_train=1.0, fraction_evaluate=0.0), uplink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=4)
    inner = strategy.inner
    assert isinstance(inner, Watching)
    assert 1 not in inner.acked
    assert strategy.ledger.by_node()[1].refused == 3


def test_a_node_refuses_a_message_that_a_newer_one_has_replaced() -> None:
    grid = Tapped(1)
    strategy = _wrapped(min_train_nodes=1, min_available_nodes=1)
    strategy.start(grid, model(), num_rounds=2)
    before = state_of(grid.contexts[1])
    (reply,) = LocalGrid.send_and_receive(grid, [grid.sent[0]])
    assert reply.has_error()
    assert "StaleError" in str(reply.error.reason)
    assert state_of(grid.contexts[1]).number == before.number


def test_a_node_without_a_replica_asks_for_a_key_frame_and_gets_it() -> None:
    grid = Tapped(2)
    strategy = _wrapped()
    strategy.start(grid, model(), num_rounds=3)
    grid.order(1, Fault.FORGET)
    strategy.start(grid, model(), num_rounds=1)
    assert strategy.ledger.by_node()[1].refused == 1
    strategy.start(grid, model(), num_rounds=1)
    last = next(message for message in reversed(grid.sent) if message.metadata.dst_node_id == 1)
    _, frames = server_message.parse_server_message(_data(last))
    assert [frame.kind for frame in frames] == [Kind.KEY, Kind.JUMP]
    assert strategy.ledger.by_round_and_node()[5, 1].refused == 0


def test_an_update_with_nan_is_an_error_that_names_the_tensor_and_keeps_the_residual() -> None:
    def train(given: Arrays, context: Context, server_round: int) -> Arrays:
        given["layer.weight"] += 1
        if (context.node_id, server_round) == (1, 2):
            given["layer.bias"][3] = np.nan
        return given

    inner = Recording()
    grid = LocalGrid(training(train), 2)
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=1)
    before = state_of(grid.contexts[1]).memory["residual"].copy()
    strategy.start(grid, model(), num_rounds=1)
    (reason,) = [str(reply.error.reason) for reply in inner.replies if reply.has_error()]
    assert "'layer.bias'" in reason
    np.testing.assert_array_equal(state_of(grid.contexts[1]).memory["residual"], before)


def test_local_tensors_never_travel_and_each_node_keeps_its_own() -> None:
    heads: dict[int, list[float]] = {}

    def train(given: Arrays, context: Context, _: int) -> Arrays:
        head = given.get("head.weight", np.zeros(7, np.float32))  # at first the app makes its own
        heads.setdefault(context.node_id, []).append(float(head[0]))
        trained = {name: array + 1 for name, array in given.items()}
        return trained | {"head.weight": (head + context.node_id).astype(np.float32)}

    initial = model()
    initial["head.weight"] = Array(np.full(7, 99, np.float32))
    inner = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.dense(), local=["head.*"])
    result = strategy.start(LocalGrid(training(train), 2), initial, num_rounds=3)
    assert heads == {1: [0.0, 1.0, 2.0], 2: [0.0, 2.0, 4.0]}
    np.testing.assert_array_equal(result.arrays["head.weight"].numpy(), np.full(7, 99, np.float32))


def test_a_local_pattern_that_matches_nothing_is_refused() -> None:
    strategy = CompressedStrategy(FedAvg(), local=["haed.*"])
    with pytest.raises(ValueError, match=r"'haed\.\*'"):
        strategy.start(LocalGrid(app(), 2), model(), num_rounds=1)


def test_arrays_that_were_never_published_are_refused() -> None:
    grid = LocalGrid(app(), 2)
    strategy = _wrapped()
    strategy.start(grid, model(), num_rounds=1)
    with pytest.raises(ValueError, match="not the published model"):
        strategy.configure_train(2, model(), ConfigRecord(), grid)


def test_a_reply_without_the_mod_is_refused_with_a_hint(flower_log: pytest.LogCaptureFixture) -> None:
    def plain(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == 1:
            reply.content["arrays"] = model()
        return [reply]

    strategy = _wrapped()
    strategy.start(Tapped(2, plain), model(), num_rounds=1)
    assert "CompressionMod" in flower_log.text
    assert strategy.ledger.refused == 1
    assert strategy.ledger.by_node()[1].uplink_bytes >= dense_size(model()), "its bytes were sent"


def test_the_first_round_logs_the_ratio_and_warns_if_it_is_near_one(flower_log: pytest.LogCaptureFixture) -> None:
    strategy, grid = _wrapped(), LocalGrid(app(), 2)
    for _ in range(2):
        strategy.start(grid, model(), num_rounds=2)
    assert flower_log.text.count("round 1, compared with plain Flower: up ") == 1
    assert "hardly compresses" not in flower_log.text
    counters = model()
    counters["norm.num_batches_tracked"] = Array(np.arange(9999))
    _wrapped().start(LocalGrid(app(), 2), counters, num_rounds=1)
    assert "hardly compresses" in flower_log.text


def test_messages_from_an_unwrapped_strategy_pass_unchanged() -> None:
    finals = []
    for mod in (True, False):
        random.seed(1)
        result = FedAvg(fraction_train=1.0).start(LocalGrid(app(with_mod=mod), 3), model(), num_rounds=2)
        finals.append(floats(result.arrays))
    np.testing.assert_array_equal(finals[0], finals[1])


def test_a_compressor_without_a_codec_id_is_refused_at_construction() -> None:
    class Homemade:
        def encode(self, value: object, /) -> bytes:
            return b""

        def decode(self, value: bytes, /, n: int | None = None) -> object:
            return None

    homemade = replace(fedcomp.dense(), entropy=Homemade())
    with pytest.raises(ValueError, match="no codec id"):
        CompressedStrategy(FedAvg(), uplink=homemade)
