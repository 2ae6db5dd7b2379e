"""Records that no frame holds: the log names each once, with its bytes and its share."""

import re
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

import fedcomp
from fedcomp.flower import AsyncMode, CompressedStrategy, CompressionMod, LocalGrid, Round
from fedcomp.sync import Ledger
from tests.flower.toy import Messages, app, model

CONTROL = ArrayRecord({"c": Array(np.arange(2000.0))})
SIZE = len(CONTROL["c"].data)


class Scaffold(FedAvg):
    """FedAvg that sends a second record to each node."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        for message in super().configure_train(server_round, arrays, config, grid):
            message.content["control"] = CONTROL
            yield message


def _app() -> ClientApp:
    """Return an app whose replies hold a second record, to messages of both types."""
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        trained = ArrayRecord({name: Array(np.asarray(array.numpy() + 1)) for name, array in arrays.items()})
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": trained, "step": CONTROL, "metrics": metrics}), reply_to=message)

    @client_app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"logits": CONTROL, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return client_app


def test_each_record_that_is_not_compressed_is_logged_once_with_its_bytes_and_its_share(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    strategy = CompressedStrategy(Scaffold(), uplink=fedcomp.stc(), downlink=fedcomp.stc())
    strategy.start(LocalGrid(_app(), 2), model(), num_rounds=3)
    lines = re.findall(r"record '(\w+)' of (\w+ \w+) is not compressed: (\d+) bytes, (\d+) % of the", flower_log.text)
    assert [line[:3] for line in lines] == [
        ("control", "train messages", str(2 * SIZE)),
        ("step", "train replies", str(2 * SIZE)),
        ("logits", "evaluate replies", str(2 * SIZE)),
    ]
    share_of_control, share_of_step, share_of_logits = (int(line[3]) for line in lines)
    assert 50 < share_of_control < 100, "a key frame of the model goes with it"
    assert share_of_step == 99
    assert share_of_logits == 50, "as large as the record in train replies"


class AsksForLosses(FedAvg):
    """FedAvg that asks each node for its loss under the newest model before a round, as power-of-choice sampling does."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        content = RecordDict({"arrays": arrays})
        queries = [Message(content, node, "query.loss") for node in grid.get_node_ids()]
        if server_round == 1:
            list(grid.send_and_receive(queries))
        else:
            list(grid.pull_messages(list(grid.push_messages(queries))))
        return super().configure_train(server_round, arrays, config, grid)


@pytest.mark.parametrize("mode", [None, AsyncMode(buffer=1)])
def test_queries_with_the_model_are_counted_and_logged(
    mode: AsyncMode | None, flower_log: pytest.LogCaptureFixture
) -> None:
    client_app = _app()

    @client_app.query("loss")
    def loss(message: Message, context: Context) -> Message:
        return Message(RecordDict({"logits": CONTROL, "metrics": MetricRecord({"loss": 1.0})}), reply_to=message)

    first, ledgers = model(), list[Ledger]()
    for inner in (FedAvg(fraction_evaluate=0), AsksForLosses(fraction_evaluate=0)):
        strategy = CompressedStrategy(inner, uplink=fedcomp.stc(), downlink=fedcomp.stc(), mode=mode)
        strategy.start(LocalGrid(client_app, 2), first, num_rounds=2)
        ledgers.append(strategy.ledger)
    for server_round in (1, 2):
        without, asking = (ledger.of_round(server_round) for ledger in ledgers)
        down = 2 * sum(len(array.data) for array in first.values())
        assert asking.downlink_bytes - without.downlink_bytes == down
        assert asking.dense_downlink_bytes - without.dense_downlink_bytes == down
        assert asking.uplink_bytes - without.uplink_bytes == 2 * SIZE
    lines = re.findall(r"record '(\w+)' of (query \w+) is not compressed: (\d+) bytes", flower_log.text)
    assert lines == [("arrays", "query messages", str(down)), ("logits", "query replies", str(2 * SIZE))]


def test_queries_of_a_start_count_in_its_first_round() -> None:
    class AsksFirst(FedAvg):
        """FedAvg whose `start` asks all nodes before the first round."""

        def start(self, grid: Grid, initial_arrays: ArrayRecord, *settings: Any, **named: Any) -> Result:
            content = RecordDict({"arrays": initial_arrays})
            list(grid.send_and_receive([Message(content, node, "query") for node in grid.get_node_ids()]))
            return super().start(grid, initial_arrays, *settings, **named)

    client_app, rounds = _app(), list[Round]()

    @client_app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    dense = fedcomp.dense()
    strategy = CompressedStrategy(AsksFirst(fraction_evaluate=0), uplink=dense, downlink=dense, on_round=rounds.append)
    grid = LocalGrid(client_app, 2)
    for _ in range(2):
        strategy.start(grid, model(), num_rounds=1)
    assert [each.number for each in rounds] == [1, 2]
    size = 2 * sum(len(array.data) for array in model().values())
    assert all(each.traffic.dense_downlink_bytes == 2 * size for each in rounds), (
        "the model in queries, and to be trained"
    )
    assert sum(each.traffic.downlink_bytes for each in rounds) == strategy.ledger.downlink_bytes


def test_a_run_that_is_compressed_as_a_whole_names_no_record(flower_log: pytest.LogCaptureFixture) -> None:
    CompressedStrategy(FedAvg()).start(LocalGrid(app(), 2), model(), num_rounds=2)
    assert "is not compressed" not in flower_log.text
