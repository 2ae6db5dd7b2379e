"""Replies that are not quite the model: lists of arrays, and differences to it."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.errors import FedcompError
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, to_record
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, floats, model, training

Reply = Callable[[list[NDArray[np.float32]]], ArrayRecord]


def _app(reply: Reply) -> ClientApp:
    """Return an app that adds 1 to everything, and replies with a record of its own making."""
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"]).to_numpy_ndarrays()
        trained = reply([np.asarray(array + context.node_id, array.dtype) for array in arrays])
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return client_app


def _final(reply: Reply, initial: ArrayRecord, *, wrap: bool = True) -> tuple[Arrays, int]:
    random.seed(1)
    strategy = FedAvg(fraction_evaluate=0.0)
    wrapped = CompressedStrategy(strategy, uplink=fedcomp.dense(), downlink=fedcomp.dense())
    result = (wrapped if wrap else strategy).start(LocalGrid(_app(reply), 3), initial, num_rounds=2)
    return arrays_of(result.arrays), wrapped.ledger.uplink_bytes


def _first_replies(client_app: ClientApp) -> list[Message]:
    """Return the replies of one node in one round."""
    replies: list[Message] = []

    class Watched(LocalGrid):
        def send_and_receive(self, messages: Messages, *, timeout: float | None = None) -> Messages:
            replies.extend(super().send_and_receive(messages, timeout=timeout))
            return replies

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1))
    with suppress(FedcompError):  # it has no usable update
        strategy.start(Watched(client_app, 1), model(), num_rounds=1)
    return replies


def test_a_list_of_arrays_in_answer_to_a_state_dict_is_taken_by_position() -> None:
    result, sent = _final(ArrayRecord, model())
    assert list(result) == list(model())
    for name, array in arrays_of(model()).items():
        np.testing.assert_allclose(result[name], array + 4, atol=1e-6)  # the mean of 1, 2 and 3, in two rounds
    assert sent > 6 * 1025 * 4, "the updates are in frames, and nothing else is"
    plain, _ = _final(ArrayRecord, model(), wrap=False)
    for array, name in zip(plain.values(), result, strict=True):
        np.testing.assert_allclose(result[name], array, atol=1e-6)


def test_a_state_dict_in_answer_to_a_list_of_arrays_is_taken_by_position() -> None:
    def named(arrays: list[NDArray[np.float32]]) -> ArrayRecord:
        return to_record(dict(zip(model(), arrays, strict=True)))

    result, _ = _final(named, ArrayRecord(model().to_numpy_ndarrays()))
    assert list(result) == ["0", "1", "2"]
    again = to_record(dict(zip(model(), result.values(), strict=True)))
    np.testing.assert_allclose(floats(again), floats(model()) + 4, atol=1e-6)


def test_other_shapes_under_other_names_are_not_taken_for_the_model() -> None:
    def reversed_list(arrays: list[NDArray[np.float32]]) -> ArrayRecord:
        return ArrayRecord(arrays[::-1])

    client_app = _app(reversed_list)
    (reply,) = _first_replies(client_app)
    assert "missing ['layer.weight', 'layer.bias'" in str(reply.error.reason)
    assert "unexpected ['0', '1', '2']" in str(reply.error.reason)


def test_a_node_that_replies_with_a_difference_gets_a_warning_in_the_first_round(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    def difference(given: Arrays, context: Context, _: int) -> Arrays:
        rng = np.random.default_rng(context.node_id)
        return {name: np.asarray(0.1 * rng.standard_normal(a.shape), a.dtype) for name, a in given.items()}

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(training(difference), 2), model(), num_rounds=1)
    assert flower_log.text.count("looks like a difference") == 2, "each node says so"
    assert strategy.version == 1, "it may be a model that training has shrunk, and counts"
    strategy.start(LocalGrid(training(difference), 2), strategy.arrays, num_rounds=1)


def test_a_difference_to_a_model_that_starts_from_zero_is_noticed_in_later_rounds(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    class AddsDifferences(FedAvg):
        """FedAvg whose nodes reply with differences."""

        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            self.model = arrays_of(arrays)
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            mean, metrics = super().aggregate_train(server_round, replies)
            assert mean is not None
            summed = {name: self.model[name] + array for name, array in arrays_of(mean).items()}
            return to_record(summed), metrics

    def difference(given: Arrays, _: Context, __: int) -> Arrays:
        return {name: np.asarray((1 - array) / 5, np.float32) for name, array in given.items()}

    strategy = CompressedStrategy(AddsDifferences(fraction_evaluate=0.0), downlink=fedcomp.dense())
    start = to_record({"w": np.zeros(500, np.float32)})
    strategy.start(LocalGrid(training(difference), 2), start, num_rounds=9)
    assert flower_log.text.count("looks like a difference") == 2, "each node says so once"


def test_a_node_whose_first_update_counted_may_shrink_its_model() -> None:
    def shrink(given: Arrays, context: Context, server_round: int) -> Arrays:
        factor = 1.1 if server_round == 1 else 0.01
        return {name: np.asarray(factor * array, array.dtype) for name, array in given.items()}

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(training(shrink), 2), model(), num_rounds=3)
    assert (strategy.version, strategy.ledger.failed) == (3, 0)
