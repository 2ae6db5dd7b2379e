"""Models that evaluation returns: in frames, close to what the app returned, and without any effect on training."""

import random
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, records, to_record
from fedcomp.wire import Ack, Kind, ServerMessage, parse_single_frame
from tests.flower.toy import Arrays, Messages, app, arrays_of, floats, model, state_of

SIZE = records.dense_size(model())
Returned = Callable[[Arrays], dict[str, Arrays]]


class Keeping(FedAvg):
    """FedAvg that keeps the array records of evaluate replies, by round and node."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, int], dict[str, Arrays]] = {}

    def aggregate_evaluate(self, server_round: int, replies: Messages) -> MetricRecord | None:
        replies = list(replies)
        for reply in replies:
            found = {key: arrays_of(record) for key, record in records.array_records(reply.content).items()}
            self.kept[server_round, reply.metadata.src_node_id] = found
        return super().aggregate_evaluate(server_round, replies)


def _run(returned: Returned, uplink: str = "stc(density=0.05)") -> tuple[CompressedStrategy, Keeping, LocalGrid]:
    """Run three rounds in which evaluation replies with what `returned` makes of the model that it was given."""
    random.seed(1)
    client_app, inner = app(), Keeping()

    @client_app.evaluate("again")
    def evaluate(message: Message, context: Context) -> Message:
        given = arrays_of(cast(ArrayRecord, message.content["arrays"]))
        content = RecordDict({"metrics": MetricRecord({"num-examples": 1})})
        for key, arrays in returned(given).items():
            content[key] = to_record(arrays)
        return Message(content, reply_to=message)

    class Again(LocalGrid):
        """Directs evaluation to the function of this test."""

        def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
            messages = list(messages)
            for message in messages:
                if message.metadata.message_type == "evaluate":
                    message.metadata.message_type = "evaluate.again"
            return super().send_and_receive(messages, timeout=timeout)

    grid = Again(client_app, 3)
    strategy = CompressedStrategy(inner, uplink=fedcomp.parse(uplink), downlink=fedcomp.stc(density=0.05))
    strategy.start(grid, model(), num_rounds=3)
    assert strategy.ledger.refused == strategy.ledger.failed == 0
    return strategy, inner, grid


def _tuned(given: Arrays) -> Arrays:
    rng = np.random.default_rng(3)
    return {
        name: array + rng.standard_normal(array.shape, np.float32) if array.dtype.kind == "f" else array + 5
        for name, array in given.items()
    }


def test_a_model_that_is_returned_unchanged_costs_a_few_bytes_and_arrives_to_the_bit() -> None:
    silent, _, _ = _run(lambda given: {})
    strategy, inner, _ = _run(lambda given: {"arrays": given})
    assert strategy.ledger.uplink_bytes - silent.ledger.uplink_bytes < 9 * 20
    assert strategy.ledger.dense_uplink_bytes - silent.ledger.dense_uplink_bytes == 9 * SIZE
    assert len(inner.kept) == 9
    for node in (1, 2, 3):
        for name, array in arrays_of(strategy.arrays).items():
            np.testing.assert_array_equal(inner.kept[3, node]["arrays"][name], array)
            assert inner.kept[3, node]["arrays"][name].dtype == array.dtype


def test_a_model_that_was_tuned_arrives_closely_in_an_eighth_of_the_bytes() -> None:
    silent, _, _ = _run(lambda given: {})
    strategy, inner, _ = _run(lambda given: {"personal": _tuned(given)})
    assert strategy.ledger.uplink_bytes - silent.ledger.uplink_bytes < 9 * SIZE / 6.5
    published = arrays_of(strategy.arrays)
    target = _tuned(published)
    for node in (1, 2, 3):
        arrived = inner.kept[3, node]["personal"]
        assert arrived["norm.num_batches_tracked"] == target["norm.num_batches_tracked"]
        error, change = (floats(to_record(each)) - floats(to_record(target)) for each in (arrived, published))
        assert np.linalg.norm(error) < 0.12 * np.linalg.norm(change)


@pytest.mark.parametrize("returned", [lambda given: {"arrays": given}, lambda given: {"arrays": _tuned(given)}])
def test_training_is_the_same_to_the_bit_as_without_it(returned: Returned) -> None:
    one, _, one_grid = _run(lambda given: {})
    other, _, other_grid = _run(returned)
    np.testing.assert_array_equal(floats(other.arrays), floats(one.arrays))
    for node in (1, 2, 3):
        mine, yours = (state_of(grid.contexts[node]) for grid in (one_grid, other_grid))
        np.testing.assert_array_equal(mine.memory["residual"], yours.memory["residual"])


def test_under_a_dense_uplink_a_returned_model_arrives_exactly() -> None:
    strategy, inner, _ = _run(lambda given: {"arrays": _tuned(given)}, "dense()")
    for name, array in _tuned(arrays_of(strategy.arrays)).items():
        np.testing.assert_allclose(inner.kept[3, 2]["arrays"][name], array, rtol=1e-6, atol=1e-6)


def _fisher(given: Arrays) -> Arrays:
    rng = np.random.default_rng(4)
    return {name: 1e-4 * rng.random(array.shape).astype(array.dtype) for name, array in given.items()}


def _gradients(given: Arrays) -> Arrays:
    rng = np.random.default_rng(5)
    return {name: (1e3 * (0.2 + rng.standard_normal(array.shape))).astype(array.dtype) for name, array in given.items()}


@pytest.mark.parametrize("uplink", ["auto()", "stc(density=0.05)", "eden(bits=4)", "dense()"])
@pytest.mark.parametrize("returned", [_fisher, _gradients])
@pytest.mark.parametrize("key", ["arrays", "importances"])
def test_what_has_the_shapes_of_the_model_but_is_none_arrives_to_the_bit(
    key: str, returned: Callable[[Arrays], Arrays], uplink: str
) -> None:
    strategy, inner, _ = _run(lambda given: {key: returned(given)}, uplink)
    for name, array in returned(arrays_of(strategy.arrays)).items():
        np.testing.assert_array_equal(inner.kept[3, 2][key][name], array)


def _nan(given: Arrays) -> Arrays:
    return given | {"layer.bias": np.full_like(given["layer.bias"], np.nan)}


def _part(given: Arrays) -> Arrays:
    return {"layer.bias": given["layer.bias"]}


def _wide(given: Arrays) -> Arrays:
    return given | {"layer.bias": given["layer.bias"].astype(np.float64)}


@pytest.mark.parametrize("change", [_nan, _part, _wide])
def test_what_is_no_such_model_travels_as_it_is(
    change: Callable[[Arrays], Arrays], flower_log: pytest.LogCaptureFixture
) -> None:
    strategy, inner, _ = _run(lambda given: {"arrays": change(given)})
    for name, array in change(arrays_of(strategy.arrays)).items():
        np.testing.assert_array_equal(inner.kept[3, 1]["arrays"][name], array)
        assert inner.kept[3, 1]["arrays"][name].dtype == array.dtype
    assert "record 'arrays' of evaluate replies is not compressed" in flower_log.text


def test_of_two_models_the_one_under_the_key_of_the_model_is_compressed(flower_log: pytest.LogCaptureFixture) -> None:
    _, inner, _ = _run(lambda given: {"a-best": given, "arrays": given})
    assert inner.kept[3, 1].keys() == {"a-best", "arrays"}
    assert "record 'a-best' of evaluate replies is not compressed" in flower_log.text
    assert "record 'arrays' of evaluate replies" not in flower_log.text


@pytest.mark.parametrize(("uplink", "kind"), [("stc(density=0.1)", Kind.ACK), ("eden(bits=4)", Kind.UPDATE)])
def test_a_node_sends_a_frame_only_to_a_server_that_names_a_compressor_without_memory(uplink: str, kind: Kind) -> None:
    strategy, _, grid = _run(lambda given: {"arrays": given})
    published = strategy.publisher.replica
    request = ServerMessage(2**62, Ack(), published.version, published.fingerprint, 0, uplink, ())
    content = RecordDict({"arrays": records.pack(request.to_bytes())})
    (reply,) = grid.send_and_receive([Message(content, 1, "evaluate")])
    found = records.packed(reply.content)
    assert found is not None
    assert parse_single_frame(found[1]).kind is kind
