"""Further records that no compressor takes, or that outgrow their dtype: none of them costs the model's update."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
from fedcomp.sync import RecordSender, decode_record, start_replica, why_uncompressed
from fedcomp.wire import layout_of
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, client_state_of

Control = Callable[[int], dict[str, NDArray[Any]]]
"""The further record of a reply in a round."""
F16_MAX = float(np.finfo(np.float16).max)
MODEL = {"w": np.zeros(8, np.float32)}


class Keeping(FedAvg):
    """FedAvg that keeps the records `control` by node, one after the other."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.kept: defaultdict[int, list[Arrays]] = defaultdict(list)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        for reply in replies:
            if reply.has_content() and "control" in reply.content:
                record = cast(ArrayRecord, reply.content.pop("control"))
                self.kept[reply.metadata.src_node_id].append(arrays_of(record))
        return super().aggregate_train(server_round, replies)


def _run(control: Control, uplink: str, rounds: int = 4) -> tuple[CompressedStrategy, list[Arrays], LocalGrid]:
    """Return a run of two nodes that add 1 to their model, and what arrived of the first one's records."""
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        server_round = cast(int, cast(ConfigRecord, message.content["config"])["server-round"])
        content = RecordDict({"arrays": ArrayRecord({name: Array(array + 1) for name, array in given.items()})})
        content["control"] = ArrayRecord({name: Array(array) for name, array in control(server_round).items()})
        content["metrics"] = MetricRecord({"num-examples": 1})
        return Message(content, reply_to=message)

    inner, dense = Keeping(), fedcomp.dense()
    strategy = CompressedStrategy(inner, uplink=dense, downlink=dense, records={"control": fedcomp.parse(uplink)})
    grid = LocalGrid(client_app, 2)
    strategy.start(grid, ArrayRecord({name: Array(array) for name, array in MODEL.items()}), num_rounds=rounds)
    assert (strategy.ledger.failed, strategy.ledger.refused) == (0, 0)
    np.testing.assert_array_equal(strategy.arrays["w"].numpy(), MODEL["w"] + rounds)
    return strategy, inner.kept[1], grid


def _grows(server_round: int) -> Arrays:
    return {"c": np.zeros(0, np.float32)} if server_round == 1 else {"c": np.full(5, server_round, np.float32)}


AS_IN_PLAIN_FLOWER: dict[str, Control] = {
    "integers alone": lambda server_round: {"c": np.full(3, server_round), "d": np.array([True])},
    "no tensor": lambda server_round: {},
    "an empty tensor": lambda server_round: {"c": np.zeros((0, 4), np.float32)},
    "empty at first": _grows,
    "values beyond 1e15": lambda server_round: {"c": np.full(3, 1e20, np.float32)},
    "values beyond float32": lambda server_round: {"c": np.full(3, 1e200)},
    "far more entries than the model": lambda server_round: {"c": np.ones(70_000, np.float32)},
    "far more tensors than the model": lambda server_round: {f"c{i}": np.ones(2, np.float32) for i in range(300)},
    "text": lambda server_round: {"c": np.array(["a", "bc"])},
    "another shape in each round": lambda server_round: {"c": np.full((server_round, 2), 2, np.float32)},
    "another order in each round": lambda server_round: dict(
        (("c", np.ones(2, np.float32)), ("d", np.full(2, 7, np.float32)))[:: (-1) ** server_round]
    ),
    "now floats, now integers": lambda server_round: {"c": np.full(3, server_round, ("f4", "i8")[server_round % 2])},
}


@pytest.mark.parametrize("name", AS_IN_PLAIN_FLOWER)
def test_what_no_compressor_takes_arrives_to_the_bit(name: str) -> None:
    control = AS_IN_PLAIN_FLOWER[name]
    _, arrived, _ = _run(control, "topk(density=1.0)")
    assert len(arrived) == 4
    for server_round, arrays in enumerate(arrived, 1):
        sent = control(server_round)
        assert arrays.keys() == sent.keys()
        for key, array in sent.items():
            np.testing.assert_array_equal(arrays[key], array)
            assert arrays[key].dtype == array.dtype


def test_the_log_says_once_why_a_record_is_not_compressed(flower_log: pytest.LogCaptureFixture) -> None:
    _run(AS_IN_PLAIN_FLOWER["integers alone"], "stc(density=0.1)")
    assert flower_log.text.count("the record 'control' of the reply travels as it is: it has no floating numbers") == 1


@pytest.mark.parametrize(
    "uplink", ["stc(density=0.1)", "topk(density=0.1)", "onebit()", "eden(bits=1)", "dgc(density=0.1)"]
)
def test_error_feedback_never_takes_a_record_out_of_its_dtype(uplink: str) -> None:
    """The mass that does not fit stays in the memory."""
    rng = np.random.default_rng(3)
    asked = [(2e4 + 1e3 * rng.standard_normal(40)).astype(np.float16) for _ in range(8)]
    _, arrived, grid = _run(lambda server_round: {"c": asked[server_round - 1]}, uplink, rounds=8)
    values = np.array([arrays["c"] for arrays in arrived])
    assert values.dtype == np.float16
    assert np.abs(values).max() <= F16_MAX
    assert len(arrived) == 8
    memory = client_state_of(grid.contexts[1]).senders["control"].memory
    if "residual" in memory:
        total = np.sum(np.array(asked, np.float64), axis=0)
        # the receiver rounds to float16, which the sender does not see
        np.testing.assert_allclose(values.astype(np.float64).sum(0) + memory["residual"], total, rtol=1e-3)


def test_what_a_lost_reply_held_beyond_its_dtype_is_not_counted_twice() -> None:
    asked = np.full(40, 2e4, np.float16)
    _, arrived, grid = _run(lambda server_round: {"c": asked}, "topk(density=0.1)", rounds=8)
    sender = client_state_of(grid.contexts[1]).senders["control"]
    owed = 8 * asked.astype(np.float64) - np.sum([arrays["c"].astype(np.float64) for arrays in arrived], axis=0)
    np.testing.assert_allclose(sender.memory["residual"], owed, rtol=1e-3)
    assert sender.pending
    sender.settle(0)
    lost = arrived[-1]["c"].astype(np.float64)
    np.testing.assert_allclose(sender.memory["residual"], owed + lost, rtol=1e-3)


def test_a_record_of_integers_between_two_of_floats_leaves_the_memory_alone() -> None:
    floats, integers = {"c": np.arange(6, dtype=np.float32)}, {"c": np.arange(6)}
    _, arrived, grid = _run(lambda number: integers if number == 2 else floats, "topk(density=0.2)", rounds=3)
    memory = client_state_of(grid.contexts[1]).senders["control"].memory
    np.testing.assert_allclose(arrived[0]["c"] + arrived[2]["c"] + memory["residual"], 2 * floats["c"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_record_that_a_sender_takes_is_one_that_the_receiver_takes(dtype: str) -> None:
    rng = np.random.default_rng(5)
    model = start_replica(layout_of(MODEL), MODEL)
    largest = {"float16": F16_MAX, "float32": 1e15, "float64": 1e15}[dtype]
    for uplink in ("stc(density=0.2)", "topk(density=0.2)", "eden(bits=2)", "onebit()", "randk(density=0.1)"):
        sender = RecordSender()
        for number in range(1, 6):
            control = {"c": (largest * rng.uniform(-1, 1, 50)).astype(dtype)}
            assert why_uncompressed(control, model.layout) == ""
            received = decode_record(sender.encode(control, uplink, model, number, number), number, model.layout)["c"]
            assert np.abs(received.astype(np.float64)).max() <= largest * (1 + 1e-6)
            sender.settle(number)
