"""Messages without any ArrayRecord pass as they are, and so do the replies to them, as in plain Flower."""

import random
import warnings
from typing import cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

import fedcomp
from fedcomp.flower import AsyncMode, CompressedStrategy, CompressionMod, LocalGrid
from tests.flower.toy import Aggregate, Messages, model

NODES, ROUNDS, HEAD = 3, 4, 5


def _configs(server_round: int, grid: Grid, kind: str) -> list[Message]:
    content = RecordDict({"config": ConfigRecord({"server-round": server_round})})
    return [Message(content, dst_node_id=node, message_type=kind) for node in grid.get_node_ids()]


class Warms(FedAvg):
    """FedAvg whose nodes get no model in odd rounds, in which they train a head of their own, and none for evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[float] = []
        self.sent = ArrayRecord()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        self.sent = arrays
        if server_round % 2:
            return _configs(server_round, grid, "train")
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        if server_round % 2 == 0:
            return super().aggregate_train(server_round, replies)
        heads = [cast(ArrayRecord, reply.content["head"])["h"].numpy() for reply in replies]
        self.heads.append(float(np.sum(heads)))
        return self.sent, MetricRecord({"heads": len(heads)})

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        return _configs(server_round, grid, "evaluate")


def _app(*, mod: bool) -> ClientApp:
    client_app = ClientApp(mods=[CompressionMod()] if mod else [])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        content = RecordDict({"metrics": MetricRecord({"num-examples": context.node_id})})
        if "arrays" in message.content:
            given = cast(ArrayRecord, message.content["arrays"])
            content["arrays"] = ArrayRecord(
                {name: Array(np.asarray(array.numpy() + 1)) for name, array in given.items()}
            )
        else:
            content["head"] = ArrayRecord({"h": Array(np.full(HEAD, context.node_id, np.float32))})
        return Message(content, reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        assert set(message.content) == {"config"}
        metrics = MetricRecord({"num-examples": 1, "node": float(context.node_id)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return client_app


def _run(strategy: FedAvg | CompressedStrategy) -> Result:
    random.seed(1)
    wrapped = isinstance(strategy, CompressedStrategy)
    return strategy.start(LocalGrid(_app(mod=wrapped), NODES), model(), num_rounds=ROUNDS)


@pytest.mark.parametrize("mode", [None, AsyncMode(buffer=NODES)])
def test_the_strategy_gets_what_plain_flower_gives_it(
    mode: AsyncMode | None, flower_log: pytest.LogCaptureFixture
) -> None:
    inner, plain = Warms(), Warms()
    strategy = CompressedStrategy(inner, mode=mode)
    compressed, expected = _run(strategy), _run(plain)
    assert inner.heads == plain.heads == [HEAD * 6] * 2
    assert compressed.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp
    assert compressed.train_metrics_clientapp == expected.train_metrics_clientapp
    assert (strategy.ledger.refused, strategy.ledger.missing) == (0, 0)
    assert "no CompressionMod" not in flower_log.text
    assert strategy.ledger.failed == 0


def test_a_server_that_moves_the_model_without_updates_is_no_error() -> None:
    """`auto()` measures a change of which no update tells anything."""

    class Moves(Warms):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            arrays, metrics = super().aggregate_train(server_round, replies)
            if server_round % 2 and arrays is not None:
                arrays = ArrayRecord({name: Array(np.asarray(array.numpy() + 1)) for name, array in arrays.items()})
            return arrays, metrics

    strategy = CompressedStrategy(Moves(), uplink=fedcomp.dense())
    with warnings.catch_warnings(record=True, action="always") as found:
        _run(strategy)
    assert strategy.version == ROUNDS
    assert not [str(each.message) for each in found if each.category is RuntimeWarning], "no mean of nothing"


def test_the_bytes_of_the_replies_are_in_the_ledger_and_nothing_counts_as_an_update() -> None:
    strategy = CompressedStrategy(Warms())
    _run(strategy)
    warm, trained = strategy.ledger.of_round(1), strategy.ledger.of_round(2)
    size = len(Array(np.zeros(HEAD, np.float32)).data)
    assert (warm.downlink_bytes, warm.uplink_bytes, warm.dense_uplink_bytes) == (0, NODES * size, NODES * size)
    assert trained.first_model_bytes
    assert trained.dense_uplink_bytes > NODES * 1000 * 4


def test_what_averages_models_says_that_there_is_none() -> None:
    class Averages(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            return _configs(server_round, grid, "train")

    with pytest.raises(ValueError, match="replies of all 3 nodes.*none of its ArrayRecords is the model"):
        _run(CompressedStrategy(Averages(fraction_evaluate=0.0)))


def test_a_node_without_the_mod_is_named_where_a_model_was_sent(flower_log: pytest.LogCaptureFixture) -> None:
    CompressedStrategy(Warms()).start(LocalGrid(_app(mod=False), NODES), model(), num_rounds=ROUNDS)
    named = [number for number in range(1, ROUNDS + 1) if f"round {number}: no CompressionMod" in flower_log.text]
    assert named == [2, 4]
