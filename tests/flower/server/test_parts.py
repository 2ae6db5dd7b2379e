"""The parts of the server on their own: the published model as records, and the messages that go out."""

import doctest
import tracemalloc
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedAvgM

import fedcomp
from fedcomp.flower import CompressedStrategy, DynamicSampling, LocalGrid, to_record
from fedcomp.flower.compat import JoinedArray
from fedcomp.flower.server import strategy
from fedcomp.flower.server.model.published_model import PublishedModel
from fedcomp.wire import BFLOAT16
from fedcomp.wire.server_message import parse_server_message
from tests.flower import toy

LocalGrid(ClientApp(), 1)  # afterwards messages can be made in this process


def arrays() -> dict[str, np.ndarray]:
    return {"w": np.ones(4, np.float32), "head": np.zeros(2, np.float32), "steps": np.array(3)}


def published(local: tuple[str, ...] = ("head",)) -> PublishedModel:
    return PublishedModel.begin(to_record(arrays()), local)


def test_local_tensors_are_in_the_public_record_alone() -> None:
    model = published()
    assert list(model.public) == ["w", "head", "steps"]
    assert list(model.inner) == ["w", "steps"]
    assert published(()).inner.keys() == arrays().keys()


def test_a_new_version_renews_the_records_and_fedavgm_steps_from_it() -> None:
    model, inner = published(), FedAvgM()
    inner.current_arrays = model.inner
    change = np.array([1, 0, 0, 0], np.float32)
    model.publish((change, (4).to_bytes(8, "little")), fedcomp.dense(), 0, DynamicSampling(inner, beta=0.1))
    assert model.inner["w"].numpy().tolist() == [2, 1, 1, 1]
    assert model.public["steps"].numpy() == 4
    assert inner.current_arrays is model.inner


def test_strategies_get_bfloat16_as_float32() -> None:
    model = PublishedModel.begin(to_record({"w": np.full(2, 0x3F80, "<u2").view(BFLOAT16)}), ())
    assert model.inner["w"].numpy().tolist() == [1, 1]
    assert model.public["w"].numpy().dtype == BFLOAT16


def test_only_the_published_arrays_pass_the_check() -> None:
    model = published()
    model.check(model.public)
    model.check(to_record(arrays()))
    for name, other in (("w", np.full(4, 2, np.float32)), ("steps", np.array(4))):
        with pytest.raises(ValueError, match="published"):
            model.check(to_record(arrays() | {name: other}))


def test_a_message_gets_frames_in_place_of_the_model_and_other_records_stay() -> None:
    model = published()
    control = ArrayRecord({"c": Array(np.ones(3))})
    shared = RecordDict({"control": control, "arrays": model.inner, "config": ConfigRecord({"lr": 0.1})})
    messages = [Message(shared, node, "train") for node in (1, 2)]
    counted = [model.pack(message, "dense()", 5, "FedAvg") for message in messages]
    assert shared["arrays"] is model.inner, "the strategy's own content does not change"
    for message, amounts in zip(messages, counted, strict=True):
        assert message.content["control"] is control
        request, frames = parse_server_message(message.content.array_records["arrays"]["fedcomp"].data)
        assert (request.uplink, request.seed, request.version, len(frames)) == ("dense()", 5, 0, 1)
        assert amounts["downlink_bytes"] == len(request.to_bytes()) + len(control["c"].data)
        assert amounts["dense_downlink_bytes"] == sum(len(a.data) for a in [*model.inner.values(), *control.values()])


def test_a_strategy_may_send_a_copy_of_the_model_but_no_other_one() -> None:
    model = published()
    copied = ArrayRecord({name: Array(array.numpy()) for name, array in model.inner.items()})
    message = Message(RecordDict({"copied": copied}), 1, "train")
    model.pack(message, "dense()", 5, "FedAvg")
    assert list(message.content["copied"]) == ["fedcomp"]
    copied["w"] = Array(np.nextafter(copied["w"].numpy(), np.float32(9)))
    with pytest.raises(ValueError, match="no record of the published model"):
        model.pack(Message(RecordDict({"copied": copied}), 2, "train"), "dense()", 5, "FedAvg")


def test_a_message_without_the_model_is_refused() -> None:
    with pytest.raises(ValueError, match="FedAvg .* node 7"):
        published().pack(Message(RecordDict({"arrays": to_record(arrays())}), 7, "train"), "dense()", 0, "FedAvg")


def test_rounds_of_a_later_start_continue_the_numbers() -> None:
    seen, grid = [], LocalGrid(toy.app(), 2)
    strategy = CompressedStrategy(FedAvg())
    strategy.start(grid, toy.model(), num_rounds=2)

    def evaluate(server_round: int, record: ArrayRecord) -> MetricRecord:
        seen.append(server_round)
        return MetricRecord({"loss": 0.5})

    result = strategy.start(grid, strategy.arrays, num_rounds=2, evaluate_fn=evaluate)
    assert seen == list(result.evaluate_metrics_serverapp) == [2, 3, 4]
    assert list(result.train_metrics_clientapp) == list(result.evaluate_metrics_clientapp) == [3, 4]


def test_the_example_of_the_strategy_prints_what_it_shows() -> None:
    failed, count = doctest.testmod(strategy)
    assert (failed, count > 0) == (0, True)


def test_the_messages_of_a_round_share_one_key_frame() -> None:
    n, nodes = 500_000, 60
    weights = np.random.default_rng(0).standard_normal(n, np.float32)
    model = PublishedModel.begin(to_record({"w": weights}), ())
    content = RecordDict({"arrays": model.inner})
    tracemalloc.start()
    messages = [Message(content, node, "train") for node in range(1, 1 + nodes)]
    sent = sum(model.pack(message, "dense()", 5, "FedAvg")["downlink_bytes"] for message in messages)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sent > nodes * 4 * n
    assert peak < 4 * 4 * n
    for message in messages[:2]:
        request, frames = parse_server_message(message.content.array_records["arrays"]["fedcomp"].data)
        assert (len(request.frames), frames[0].version) == (1, 0)


def test_no_frame_is_joined_on_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join copies the whole first model; only what sends the message reads its bytes."""
    data, joined, before = JoinedArray.data, list[JoinedArray](), list[int]()

    def read(array: JoinedArray) -> Any:
        joined.append(array)
        return cast(Any, data).fget(array)

    monkeypatch.setattr(JoinedArray, "data", property(read, cast(Any, data).fset))

    class Watched(LocalGrid):
        """A grid that notes how many joins came before it has sent anything."""

        def push_messages(self, messages: toy.Messages) -> Iterable[str]:
            messages = list(messages)
            before.append(len(joined))
            return super().push_messages(messages)

    CompressedStrategy(FedAvg(fraction_evaluate=0.0)).start(Watched(toy.app(), 3), toy.model(), 1)
    assert before[0] == 0
    assert joined, "the nodes read what was sent"
