"""The grid in this process: an ordinary Flower grid that can inject faults."""

from typing import cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import LocalGrid
from fedcomp.flower.local_grid import Fault


def _counting() -> ClientApp:
    """Return an app that counts, in the state of its node, the messages that it got, and replies with the count."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        worked = cast(int, cast(MetricRecord, context.state["worked"])["times"]) if "worked" in context.state else 0
        context.state["worked"] = MetricRecord({"times": worked + 1})
        if context.run_config.get("fails-at") == worked:
            raise RuntimeError("on request")
        return Message(RecordDict({"m": MetricRecord({"times": worked + 1})}), reply_to=message)

    return app


def _send(grid: LocalGrid, node: int) -> list[Message]:
    message = Message(RecordDict({"config": ConfigRecord({"a": 1})}), node, "train")
    return list(grid.send_and_receive([message]))


def _times(reply: Message) -> int:
    return cast(int, cast(MetricRecord, reply.content["m"])["times"])


def test_nodes_have_ids_from_one_and_know_their_partition() -> None:
    grid = LocalGrid(_counting(), 3, {"key": "value"}, node_config=lambda node: {"disk": f"/data/{node}"})
    assert list(grid.get_node_ids()) == [1, 2, 3]
    context = grid.contexts[2]
    assert context.node_config == {"partition-id": 1, "num-partitions": 3, "disk": "/data/2"}
    assert context.run_config == {"key": "value"}


def test_a_reply_names_its_message_and_its_node() -> None:
    grid = LocalGrid(_counting(), 2)
    (reply,) = _send(grid, 2)
    assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (2, 0)
    assert reply.metadata.reply_to_message_id == "1"


@pytest.mark.parametrize(
    ("fault", "replies", "afterwards"),
    [
        (Fault.LOSE_MESSAGE, [], 2),
        (Fault.LOSE_REPLY, [], 3),
        (Fault.DELIVER_TWICE, [2, 3], 4),
        (Fault.DOUBLE_REPLY, [2, 2], 3),
        (Fault.CRASH, [], 2),
        (Fault.FORGET, [1], 2),
    ],
)
def test_an_injected_fault_happens_once(fault: Fault, replies: list[int], afterwards: int) -> None:
    grid = LocalGrid(_counting(), 2)
    assert [_times(reply) for reply in _send(grid, 1)] == [1]
    grid.order(1, fault)
    assert list(grid.faults[1]) == [fault]
    assert [_times(reply) for reply in _send(grid, 1)] == replies
    assert [_times(reply) for reply in _send(grid, 1)] == [afterwards]
    assert [_times(reply) for reply in _send(grid, 2)] == [1], "no other node is affected"


def test_an_app_that_raises_gives_an_error_reply_and_its_state_does_not_change() -> None:
    grid = LocalGrid(_counting(), 1, {"fails-at": 1})
    _send(grid, 1)
    (reply,) = _send(grid, 1)
    assert reply.has_error()
    assert "on request" in str(reply.error.reason)
    assert grid.contexts[1].state.metric_records["worked"]["times"] == 1


def test_a_change_of_a_message_by_one_node_is_not_visible_to_others() -> None:
    app = ClientApp()
    seen = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = cast(ArrayRecord, message.content["arrays"])
        seen.append(sorted(arrays))
        arrays.pop("w")
        return Message(RecordDict({"m": MetricRecord({"num-examples": 1})}), reply_to=message)

    grid = LocalGrid(app, 2)
    record = RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(3))})})
    list(grid.send_and_receive([Message(record, node, "train") for node in (1, 2)]))
    assert seen == [["w"], ["w"]]
    assert list(record.array_records["arrays"]) == ["w"]


def test_messages_can_be_pushed_first_and_pulled_later() -> None:
    grid = LocalGrid(_counting(), 2)
    messages = [Message(RecordDict(), node, "train") for node in (1, 2)]
    ids = list(grid.push_messages(messages))
    assert [_times(reply) for reply in grid.pull_messages(ids[:1])] == [1]
    assert list(grid.pull_messages(ids[:1])) == [], "a reply is pulled once"
    assert len(list(grid.pull_messages(ids))) == 1


def test_flowers_own_strategy_runs_on_it() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        w = cast(ArrayRecord, message.content["arrays"])["w"].numpy() + context.node_id
        content = {"arrays": ArrayRecord({"w": Array(w)}), "m": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)  # type: ignore[arg-type]

    initial = ArrayRecord({"w": Array(np.zeros(2))})
    result = FedAvg(fraction_evaluate=0.0).start(LocalGrid(app, 3), initial, num_rounds=2)
    np.testing.assert_allclose(result.arrays["w"].numpy(), [4, 4])


def test_a_grid_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="num_nodes is 0"):
        LocalGrid(_counting(), 0)
