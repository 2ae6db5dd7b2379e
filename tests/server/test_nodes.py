"""The same partitions take part in the same order, whatever ids Flower gives the nodes."""

import random
from collections.abc import Iterable

import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from fedcomp.flower.local_grid import Fault
from server.nodes import OrderedGrid, query_partitions


class Renamed(LocalGrid):
    """A `LocalGrid` whose nodes list themselves in another order, as random ids would."""

    order_of_ids: list[int]

    def get_node_ids(self) -> Iterable[int]:
        return self.order_of_ids


def _shuffled(seed: int, nodes: int = 9) -> Renamed:
    """Return a grid in which node 1 + k has a partition that depends on the seed."""
    partitions = random.Random(seed).sample(range(nodes), nodes)
    run: UserConfig = {"partition": "iid()"}
    grid = Renamed(client_app, nodes, run, node_config=lambda node: {"partition-id": partitions[node - 1]})
    grid.order_of_ids = random.Random(seed + 1).sample(range(1, nodes + 1), nodes)
    return grid


def test_the_query_returns_the_partition_of_each_node() -> None:
    grid = _shuffled(3)
    partitions = {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}
    assert query_partitions(grid) == (partitions, 9)


@pytest.mark.parametrize(
    ("partitions", "counts", "found", "words"),
    [
        ([0, 1, 2, 3], [4, 4, 4, 4], 4, []),
        ([0, 1, 1, 1], [4, 4, 4, 4], 4, ["nodes 2 and 3 both have partition-id 1"]),
        ([0, 1, 2, 3], [4, 9, 4, 10], None, ["from 4 to 10 num-partitions"]),
    ],
)
def test_nodes_that_train_on_the_same_samples_are_named_once(
    partitions: list[int], counts: list[int], found: int | None, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def config(node: int) -> UserConfig:
        return {"partition-id": partitions[node - 1], "num-partitions": counts[node - 1]}

    with caplog.at_level("WARNING", "flwr"):
        named = query_partitions(LocalGrid(client_app, 4, {"partition": "iid()"}, config))
    assert named == (dict(enumerate(partitions, 1)), found)
    assert len(caplog.messages) == len(words)
    assert all(word in message for word, message in zip(words, caplog.messages, strict=True))


def test_nodes_with_samples_of_their_own_may_have_the_same_partition(caplog: pytest.LogCaptureFixture) -> None:
    app = ClientApp()

    @app.query("partition")
    def answer(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 7, "partition-id": 3})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    with caplog.at_level("WARNING", "flwr"):
        assert query_partitions(LocalGrid(app, 2)) == ({1: 3, 2: 3}, None)
    assert caplog.messages == []


def test_the_same_seed_samples_the_same_partitions_in_the_same_order() -> None:
    drawn = []
    for seed in range(5):
        grid = _shuffled(seed)
        partitions, _ = query_partitions(grid)
        random.seed(11)
        drawn.append([partitions[node] for node in sample_nodes(OrderedGrid(grid, partitions), 9, 4)[0]])
    assert drawn == 5 * [drawn[0]]
    assert len(set(drawn[0])) == 4


def test_nodes_with_unknown_partitions_come_last() -> None:
    grid = _shuffled(0)
    partitions = {node: number for node, number in query_partitions(grid)[0].items() if number not in (2, 5)}
    ordered = [grid.contexts[node].node_config["partition-id"] for node in OrderedGrid(grid, partitions).get_node_ids()]
    assert ordered[:7] == [0, 1, 3, 4, 6, 7, 8]
    assert set(ordered[7:]) == {2, 5}
    wrapper = OrderedGrid(grid, partitions)
    assert [node.node_id for node in wrapper.get_nodes()] == list(wrapper.get_node_ids())


def test_a_lost_reply_an_error_and_a_wrong_number_leave_a_node_out() -> None:
    app = ClientApp()

    @app.query("partition")
    def answer(message: Message, context: Context) -> Message:
        if context.node_id == 1:
            raise RuntimeError("as ordered")
        number = 0.5 if context.node_id == 2 else context.node_id
        return Message(RecordDict({"metrics": MetricRecord({"partition-id": number})}), reply_to=message)

    grid = LocalGrid(app, 4)
    grid.order(3, Fault.LOSE_REPLY)
    assert query_partitions(grid) == ({4: 4}, None)


def test_a_run_in_which_no_node_can_take_part_is_refused_in_one_line() -> None:
    app = ClientApp()

    @app.query("partition")
    def answer(message: Message, context: Context) -> Message:
        reason = "no samples\n\x1b[2Jhere" + 1000 * "!"
        if context.node_id == 2:
            raise ValueError(reason)
        return Message(RecordDict({"refused": ConfigRecord({"reason": reason})}), reply_to=message)

    with pytest.raises(ValueError, match=r"node 1 says: no samples \?\[2Jhere!+\.\.\.$") as caught:
        query_partitions(LocalGrid(app, 4))
    assert len(str(caught.value)) < 600


def test_lost_replies_do_not_prevent_the_start() -> None:
    grid = LocalGrid(client_app, 2, {"partition": "iid()"})
    grid.order(1, Fault.LOSE_REPLY)
    grid.order(2, Fault.LOSE_MESSAGE)
    assert query_partitions(grid) == ({}, None)


def test_the_error_of_a_node_is_logged_without_its_wrapping(caplog: pytest.LogCaptureFixture) -> None:
    app = ClientApp()

    @app.query("partition")
    def answer(message: Message, context: Context) -> Message:
        if context.node_id == 2:
            raise OSError("the disk is on fire")
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 7})}), reply_to=message)

    with caplog.at_level("WARNING", "flwr"):
        assert query_partitions(LocalGrid(app, 3)) == ({}, None)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["node 2 cannot take part; it says: the disk is on fire"]


def test_the_node_whose_refusal_is_quoted_does_not_depend_on_the_order_of_ids() -> None:
    app = ClientApp()

    @app.query("partition")
    def answer(message: Message, context: Context) -> Message:
        return Message(RecordDict({"refused": ConfigRecord({"reason": "no samples"})}), reply_to=message)

    grid = Renamed(app, 3)
    grid.order_of_ids = [3, 1, 2]
    with pytest.raises(ValueError, match="node 1 says: no samples"):
        query_partitions(grid)
