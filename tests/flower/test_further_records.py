"""Further records of replies, such as control variates: compressed exactly once, with a memory of their own."""

import random
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, records
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.records import Contents
from fedcomp.sync import RecordSender, start_replica
from fedcomp.wire import layout_of, parse_single_frame
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, client_state_of, floats, model

Floats = NDArray[np.float64]
NODES, N = 4, 600


def _control(node: int, server_round: int) -> Arrays:
    rng = np.random.default_rng([node, server_round])
    return {
        "c.weight": rng.standard_t(2, (29, 20)).astype(np.float32),
        "steps": np.array(server_round * 10 + node),
        "c.bias": rng.standard_normal(20, np.float32),
    }


def _vector(control: Arrays) -> Floats:
    return np.concatenate([control[name].ravel() for name in ("c.weight", "c.bias")]).astype(np.float64)


class Summing(FedAvg):
    """FedAvg that sums the control variates that arrive, by node, and keeps the last ones."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: defaultdict[int, Floats] = defaultdict(lambda: np.zeros(N))
        self.last: dict[int, Arrays] = {}

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        for reply in replies:
            if reply.has_content():
                node = reply.metadata.src_node_id
                if "control" not in reply.content:
                    continue
                self.last[node] = arrays_of(cast(ArrayRecord, reply.content.pop("control")))
                self.accepted[node] = self.accepted[node] + _vector(self.last[node])
        return super().aggregate_train(server_round, replies)


def _app(change: Callable[[Arrays], Arrays] = lambda control: control) -> ClientApp:
    """Return an app that replies with control variates, and keeps their sum in ``Context.state``."""
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        assert set(message.content) == {"arrays", "config"}, "the app does not see the names of the compressors"
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        control = change(_control(context.node_id, server_round))
        total = _vector(control)
        if "asked" in context.state:
            total = total + context.state.array_records["asked"]["sum"].numpy()
        context.state["asked"] = ArrayRecord({"sum": Array(total)})
        content = RecordDict({"arrays": ArrayRecord({name: Array(np.asarray(a + 1)) for name, a in given.items()})})
        content["control"] = ArrayRecord({name: Array(array) for name, array in control.items()})
        content["metrics"] = MetricRecord({"num-examples": 1})
        return Message(content, reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return client_app


def _strategy(control: str | None = "stc(density=0.05)") -> CompressedStrategy:
    chosen = {"control": fedcomp.parse(control)} if control is not None else None
    return CompressedStrategy(
        Summing(), uplink=fedcomp.stc(density=0.1), downlink=fedcomp.stc(density=0.1), records=chosen
    )


def _inner(strategy: CompressedStrategy) -> Summing:
    assert isinstance(strategy.inner, Summing)
    return strategy.inner


def _residual(context: Context) -> Floats:
    sender = client_state_of(context).senders["control"]
    assert not sender.pending, "the evaluation at the end of the round has settled it"
    return cast(NDArray[np.float32], sender.memory["residual"]).astype(np.float64)


def _asked(context: Context) -> Floats:
    return context.state.array_records["asked"]["sum"].numpy()


@pytest.mark.sample(1)
@pytest.mark.one_flower
@pytest.mark.parametrize("in_memory", [False, True])
def test_under_all_faults_the_sum_of_what_arrived_and_the_residual_is_the_sum_of_what_was_asked(
    in_memory: bool,
) -> None:
    random.seed(3)
    faults = random.Random(4)
    grid, strategy = LocalGrid(_app(), NODES, in_memory=in_memory), _strategy()
    accepted = _inner(strategy).accepted
    forgotten: dict[int, Floats] = {}
    seen: set[Fault] = set()
    for _ in range(40):
        for node in range(1, NODES + 1):
            fault = faults.choice([*Fault, *[None] * 3])
            if fault is not None:
                grid.order(node, fault)
                seen.add(fault)
            if fault is Fault.FORGET:
                forgotten[node] = accepted[node]
        strategy.start(grid, model(), num_rounds=1)
    strategy.start(grid, model(), num_rounds=2)
    assert seen == set(Fault)
    assert strategy.ledger.refused
    for node, context in grid.contexts.items():
        arrived = accepted[node] - forgotten.get(node, 0)
        assert np.abs(arrived).max()
        np.testing.assert_allclose(arrived + _residual(context), _asked(context), atol=1e-4)


def test_a_lost_reply_arrives_with_the_next_one() -> None:
    one, other = LocalGrid(_app(), 2), LocalGrid(_app(), 2)
    plain, lossy = _strategy("topk(density=1.0)"), _strategy("topk(density=1.0)")
    other.order(1, Fault.LOSE_REPLY)
    plain.start(one, model(), num_rounds=2)
    lossy.start(other, model(), num_rounds=2)
    np.testing.assert_allclose(_inner(lossy).accepted[1], _inner(plain).accepted[1], atol=1e-5)
    np.testing.assert_allclose(_inner(lossy).accepted[1], _vector(_control(1, 1)) + _vector(_control(1, 2)), atol=1e-5)


def test_a_repeated_message_gets_the_same_bytes() -> None:
    replies: list[Message] = []

    class Watched(LocalGrid):
        def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
            for reply in super().send_and_receive(messages, timeout=timeout):
                replies.append(Message(reply.content.copy(), reply_to=reply))
                replies[-1].metadata.__dict__.update(reply.metadata.__dict__)
                yield reply

    grid = Watched(_app(), 2)
    grid.order(2, Fault.DELIVER_TWICE)
    strategy = _strategy()
    strategy.start(grid, model(), num_rounds=1)
    first, second = (reply for reply in replies[:3] if reply.metadata.src_node_id == 2)
    assert Contents.of(first.content).compressed.keys() == {"control"}
    assert Contents.of(first.content).compressed == Contents.of(second.content).compressed
    assert records.packed(first.content) == records.packed(second.content)
    np.testing.assert_allclose(_inner(strategy).accepted[2] + _residual(grid.contexts[2]), _asked(grid.contexts[2]))


def test_a_device_that_restarts_keeps_the_residual_and_the_pending_record_in_its_files(tmp_path: Path) -> None:
    def grid() -> LocalGrid:
        return LocalGrid(_app(), 2, node_config=lambda node: {"state-dir": str(tmp_path / str(node))})

    before, after, strategy = grid(), grid(), _strategy()
    strategy.start(before, model(), num_rounds=3)
    before.order(1, Fault.LOSE_REPLY)
    before.order(1, Fault.LOSE_MESSAGE)  # that of the evaluation: the record is still pending when the device restarts
    strategy.start(before, model(), num_rounds=1)
    assert client_state_of(before.contexts[1]).senders["control"].pending
    strategy.start(after, model(), num_rounds=2)
    for node in (1, 2):
        asked = _asked(after.contexts[node])  # counted since the first start: the app's records are in the files too
        arrived = _inner(strategy).accepted[node]
        np.testing.assert_allclose(arrived + _residual(after.contexts[node]), asked, atol=1e-5)


def test_a_dense_compressor_gives_the_records_of_plain_flower_to_the_bit() -> None:
    plain, packed = _strategy(None), _strategy("dense()")
    for strategy in (plain, packed):
        random.seed(5)
        strategy.start(LocalGrid(_app(), NODES), model(), num_rounds=2)
    for node in range(1, NODES + 1):
        for name, array in _control(node, 2).items():
            for inner in (_inner(plain), _inner(packed)):
                np.testing.assert_array_equal(inner.last[node][name], array)
                assert inner.last[node][name].dtype == array.dtype
    np.testing.assert_array_equal(floats(packed.arrays), floats(plain.arrays))
    assert packed.ledger.dense_bytes == plain.ledger.dense_bytes


def test_the_ledger_has_the_sent_bytes_and_the_log_no_longer_names_the_record(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    dense, sparse = _strategy(None), _strategy("stc(density=0.01)")
    dense.start(LocalGrid(_app(), NODES), model(), num_rounds=2)
    assert "record 'control' of train replies is not compressed" in flower_log.text
    flower_log.clear()
    sparse.start(LocalGrid(_app(), NODES), model(), num_rounds=2)
    assert "is not compressed" not in flower_log.text
    assert dense.ledger.uplink_bytes - sparse.ledger.uplink_bytes > 2 * NODES * 4 * N * 0.85
    assert sparse.ledger.dense_bytes == dense.ledger.dense_bytes


Forgery = Callable[[bytes], dict[str, bytes]]


def _other(data: bytes) -> dict[str, bytes]:
    """Return a valid record frame that answers another message."""
    rng = np.random.default_rng(1)
    replica = start_replica(layout_of(arrays_of(model())), arrays_of(model()))
    arrays = {"c": rng.standard_normal(100, np.float32)}
    return {"control": RecordSender().encode(arrays, "dense()", replica, parse_single_frame(data).after + 1, 0)}


FORGERIES: list[tuple[Forgery, str]] = [
    (lambda data: {"control": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]}, "CRC32"),
    (lambda data: {"control": data[:-1]}, "payload"),
    (lambda data: {"control": b""}, "0 bytes"),
    (_other, "answers message"),
    (lambda data: {"control": data, "more": data}, "named no compressor"),
]


@pytest.mark.parametrize(("forgery", "text"), FORGERIES)
def test_a_damaged_record_is_refused_by_name_and_its_mass_returns(
    forgery: Forgery, text: str, flower_log: pytest.LogCaptureFixture
) -> None:
    class Damaging(LocalGrid):
        round = 0

        def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
            self.round += 1
            for reply in super().send_and_receive(messages, timeout=timeout):
                packed = Contents.of(reply.content).compressed
                if self.round == 3 and packed and reply.metadata.src_node_id == 2:
                    for key, data in forgery(packed["control"].data).items():
                        reply.content[key] = records.pack(data, stype=records.RECORD_STYPE)
                yield reply

    grid, strategy = Damaging(_app(), 3), _strategy()
    strategy.start(grid, model(), num_rounds=3)
    assert strategy.ledger.refused == 1
    (line,) = re.findall(r"the reply of node 2 is dropped: the record '\w+'.*", flower_log.text)
    assert text in line
    for node, context in grid.contexts.items():
        np.testing.assert_allclose(
            _inner(strategy).accepted[node] + _residual(context), _asked(context), atol=1e-5, err_msg=str(node)
        )


def test_a_record_that_cannot_be_sent_costs_only_itself(flower_log: pytest.LogCaptureFixture) -> None:
    def bad(control: Arrays) -> Arrays:
        return control | {"c.bias": np.full(20, np.nan, np.float32)} if control["steps"] == 22 else control

    for in_memory in (False, True):
        flower_log.clear()
        grid, strategy = LocalGrid(_app(bad), 2, in_memory=in_memory), _strategy()
        strategy.start(grid, model(), num_rounds=3)
        assert (strategy.ledger.failed, strategy.ledger.refused, strategy.version) == (0, 0, 3)
        assert "the record 'control' is left out of the reply" in flower_log.text
        assert "'c.bias'" in flower_log.text
        asked = _vector(_control(2, 1)) + _vector(_control(2, 3))
        np.testing.assert_allclose(
            _inner(strategy).accepted[2] + _residual(grid.contexts[2]), asked, atol=1e-5, err_msg=str(in_memory)
        )


class TwoNetworks(FedAvg):
    """FedAvg that also sends a network `b` of the same shape, which nodes train in even rounds in place of the model."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.b = self.sent = ArrayRecord({"w": Array(np.full(300, 3, np.float32))})

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        self.sent = arrays
        for message in super().configure_train(server_round, arrays, config, grid):
            message.content["b"] = self.b
            yield message


class InTurn(TwoNetworks):
    """Aggregates the network of the round."""

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        key = "arrays" if server_round % 2 else "b"
        trained = [cast(ArrayRecord, reply.content[key])["w"].numpy() for reply in replies]
        new = ArrayRecord({"w": Array(np.mean(trained, axis=0).astype(np.float32))})
        if key == "arrays":
            return new, MetricRecord()
        self.b = new
        return self.sent, MetricRecord()


def _in_turn() -> ClientApp:
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        key = "arrays" if server_round % 2 else "b"
        w = cast(ArrayRecord, message.content[key])["w"].numpy() + np.float32(context.node_id)
        content = RecordDict({key: ArrayRecord({"w": Array(w)}), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return client_app


def test_a_reply_under_the_key_of_another_record_of_the_message_is_not_the_model() -> None:
    inner = InTurn()
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.1), downlink=fedcomp.dense())
    first = ArrayRecord({"w": Array(np.zeros(300, np.float32))})
    strategy.start(LocalGrid(_in_turn(), 3), first, num_rounds=4)
    np.testing.assert_array_equal(inner.b["w"].numpy(), 3 + 2 * 2)  # the mean of 1, 2 and 3, in two rounds
    assert (strategy.ledger.refused, strategy.version) == (0, 4)
    assert all(strategy.ledger.of_round(even).uplink_bytes > 3 * 300 * 4 for even in (2, 4)), "`b` travels as it is"
    assert strategy.ledger.of_round(3).uplink_bytes < 3 * 300


def test_a_strategy_of_flower_drops_replies_without_the_model_and_says_why(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    strategy = CompressedStrategy(TwoNetworks(), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    first = ArrayRecord({"w": Array(np.zeros(300, np.float32))})
    strategy.start(LocalGrid(_in_turn(), 3), first, num_rounds=2)
    np.testing.assert_allclose(strategy.arrays["w"].numpy(), 2, atol=1e-6)
    assert (strategy.ledger.refused, strategy.version) == (3, 1)
    assert "not under the key of another record" in flower_log.text


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"control": "stc()"}, "stc"),
        ({"": fedcomp.stc()}, "''"),
        ({"control": fedcomp.auto()}, "auto"),
        ({"control": fedcomp.ef21()}, "ef21"),
    ],
)
def test_a_compressor_that_cannot_be_used_is_refused_at_construction(chosen: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CompressedStrategy(FedAvg(), records=chosen)


def test_the_models_own_record_is_refused() -> None:
    strategy = CompressedStrategy(FedAvg(), records={"arrays": fedcomp.stc()})
    with pytest.raises(ValueError, match="'arrays'"):
        strategy.start(LocalGrid(_app(), 2), model(), num_rounds=1)


def test_a_key_that_no_reply_holds_is_named_once(flower_log: pytest.LogCaptureFixture) -> None:
    compressor = fedcomp.stc(density=0.05)
    strategy = CompressedStrategy(Summing(), records={"control": compressor, "contrl": compressor, "c": compressor})
    for _ in range(2):
        strategy.start(LocalGrid(_app(), 2), model(), num_rounds=1)
    assert re.findall(r"round \d+: no reply holds the ArrayRecord.*", flower_log.text) == [
        f"round 1: no reply holds the ArrayRecord {key!r} that records names; beside the model, they hold 'control'"
        for key in ("c", "contrl")
    ]


class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy et al., 2020) with all nodes in every round; the `control` variates start at zero."""

    def __init__(self, *, corrected: bool = True) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.control, self.corrected = np.zeros(50, np.float32), corrected

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        for message in super().configure_train(server_round, arrays, config, grid):
            message.content["control"] = ArrayRecord({"c": Array(self.control)})
            yield message

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        steps = [cast(ArrayRecord, reply.content.pop("control"))["c"].numpy() for reply in replies]
        if self.corrected:
            self.control = self.control + np.mean(steps, axis=0)
        return super().aggregate_train(server_round, replies)


def _quadratic(node: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return curvatures and the minimum of the loss of a node."""
    rng = np.random.default_rng(node)
    return rng.uniform(0.1, 2, 50).astype(np.float32), rng.standard_normal(50, np.float32)


@cache
def _distance(
    control: str | None, *, corrected: bool = True, nodes: int = 4, steps: int = 10, rate: float = 0.2
) -> float:
    """Return the distance to the minimum of the mean loss after 60 rounds of SCAFFOLD, relative to that of the start."""
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        start = cast(ArrayRecord, message.content["arrays"])["w"].numpy()
        shared = cast(ArrayRecord, message.content["control"])["c"].numpy()
        curvature, minimum = _quadratic(context.node_id)
        own = context.state.array_records["own"]["c"].numpy() if "own" in context.state else np.zeros_like(shared)
        w = start
        for _ in range(steps):
            w = w - rate * (curvature * (w - minimum) - own + shared)
        step = (start - w) / (steps * rate) - shared
        context.state["own"] = ArrayRecord({"c": Array(own + step if corrected else own)})
        content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "control": ArrayRecord({"c": Array(step)})})
        content["metrics"] = MetricRecord({"num-examples": 1})
        return Message(content, reply_to=message)

    chosen = {"control": fedcomp.parse(control)} if control is not None else None
    strategy = CompressedStrategy(
        Scaffold(corrected=corrected), uplink=fedcomp.dense(), downlink=fedcomp.dense(), records=chosen
    )
    strategy.start(LocalGrid(client_app, nodes), ArrayRecord({"w": Array(np.zeros(50, np.float32))}), num_rounds=60)
    assert not strategy.ledger.failed
    losses = [_quadratic(node) for node in range(1, nodes + 1)]
    best = np.sum([curve * low for curve, low in losses], axis=0) / np.sum([curve for curve, _ in losses], axis=0)
    return float(np.linalg.norm(strategy.arrays["w"].numpy() - best) / np.linalg.norm(best))


@pytest.mark.one_flower
def test_scaffold_learns_as_well_with_compressed_control_variates_as_with_dense_ones() -> None:
    drifting, dense = _distance(None, corrected=False), _distance(None)
    assert drifting > 0.05, "without control variates, the nodes drift apart"
    assert dense < 0.01
    for control in ("onebit()", "stc(density=0.1)"):
        assert _distance(control) < dense + 0.01


@pytest.mark.one_flower
def test_differences_that_add_up_need_a_compressor_with_a_memory() -> None:
    assert _distance("eden(bits=1)") > 10 * _distance("onebit()"), "both send one bit an entry"
