"""Records that no frame holds: the log names each once, with its bytes and its share."""

import re
from typing import cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
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


def test_a_run_that_is_compressed_as_a_whole_names_no_record(flower_log: pytest.LogCaptureFixture) -> None:
    CompressedStrategy(FedAvg()).start(LocalGrid(app(), 2), model(), num_rounds=2)
    assert "is not compressed" not in flower_log.text
