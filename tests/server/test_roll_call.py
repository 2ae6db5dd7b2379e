"""The same partitions take part, in the same order, whatever ids Flower gives the nodes."""

import random
from collections.abc import Iterable

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from fedcomp.flower.local_grid import Fault
from server.roll_call import OrderedGrid, call_roll


class Renamed(LocalGrid):
    """A `LocalGrid` whose nodes list themselves in another order, as random ids would."""

    order_of_ids: list[int]

    def get_node_ids(self) -> Iterable[int]:
        return self.order_of_ids


def _shuffled(seed: int, nodes: int = 9) -> Renamed:
    """Return a grid in which node 1 + k has a partition that depends on the seed."""
    partitions = random.Random(seed).sample(range(nodes), nodes)
    grid = Renamed(client_app, nodes, node_config=lambda node: {"partition-id": partitions[node - 1]})
    grid.order_of_ids = random.Random(seed + 1).sample(range(1, nodes + 1), nodes)
    return grid


def test_the_roll_says_which_partition_each_node_has() -> None:
    grid = _shuffled(3)
    assert call_roll(grid) == {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}


def test_the_same_seed_draws_the_same_partitions_in_the_same_order() -> None:
    drawn = []
    for seed in range(5):
        grid = _shuffled(seed)
        partitions = call_roll(grid)
        random.seed(11)
        drawn.append([partitions[node] for node in sample_nodes(OrderedGrid(grid, partitions), 9, 4)[0]])
    assert drawn == 5 * [drawn[0]]
    assert len(set(drawn[0])) == 4


def test_a_node_that_does_not_answer_or_came_later_is_the_last() -> None:
    grid = _shuffled(0)
    partitions = {node: number for node, number in call_roll(grid).items() if number not in (2, 5)}
    ordered = [grid.contexts[node].node_config["partition-id"] for node in OrderedGrid(grid, partitions).get_node_ids()]
    assert ordered[:7] == [0, 1, 3, 4, 6, 7, 8]
    assert set(ordered[7:]) == {2, 5}


def test_a_lost_message_an_error_and_an_answer_without_a_number_leave_a_node_out() -> None:
    app = ClientApp()

    @app.query("partition")
    def answer(message: Message, context: Context) -> Message:
        if context.node_id == 1:
            raise RuntimeError("as ordered")
        number = 0.5 if context.node_id == 2 else context.node_id
        return Message(RecordDict({"metrics": MetricRecord({"partition-id": number})}), reply_to=message)

    grid = LocalGrid(app, 4)
    grid.order(3, Fault.LOSE_REPLY)
    assert call_roll(grid) == {4: 4}
