import random
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.global_random_workaround import IsolatedRandom
from tests.flower.toy import app, model


def test_what_others_draw_in_between_changes_nothing() -> None:
    random.seed(1)
    expected = [random.random() for _ in range(5)]
    random.seed(1)
    own, drawn = IsolatedRandom(), []
    own.hold()
    for _ in range(5):
        random.random()
        with own.used():
            drawn.append(random.random())
    assert drawn == expected


def test_it_begins_once_and_not_anew() -> None:
    random.seed(1)
    own = IsolatedRandom()
    own.hold()
    begun = own.state
    random.seed(2)
    own.hold()
    assert own.state == begun


class Drawn(FedAvg):
    """FedAvg that writes down whom it picks."""

    def __init__(self) -> None:
        super().__init__(fraction_train=0.4, fraction_evaluate=0.4)
        self.picked: list[list[int]] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.picked.append([message.metadata.dst_node_id for message in messages])
        return messages


def test_a_thread_that_draws_as_flowers_heartbeat_does_picks_no_other_nodes() -> None:
    picked = []
    for restless in (False, True):
        inner = Drawn()
        random.seed(8)
        strategy = CompressedStrategy(inner)
        for _ in range(6):
            strategy.start(LocalGrid(app(), 10), model() if not inner.picked else strategy.arrays, num_rounds=1)
            if restless:
                random.uniform(0.7, 0.9)
        picked.append(inner.picked)
    assert picked[0] == picked[1]
    assert len({tuple(nodes) for nodes in picked[0]}) > 1, "the rounds differ"


def test_to_all_others_the_numbers_go_on_as_if_it_were_not_there() -> None:
    random.seed(1)
    expected = [random.random() for _ in range(4)]
    random.seed(1)
    own, drawn = IsolatedRandom(), []
    for _ in range(4):
        with own.used():
            random.random()
        drawn.append(random.random())
    assert drawn == expected


class Busy(LocalGrid):
    """A grid while whose nodes are listed somebody else draws, as Flower's heartbeat may."""

    def get_node_ids(self) -> Iterable[int]:
        random.uniform(0.7, 0.9)
        return super().get_node_ids()


def test_who_draws_while_the_nodes_are_listed_changes_nothing() -> None:
    picked = []
    for kind in (LocalGrid, Busy):
        inner = Drawn()
        random.seed(8)
        CompressedStrategy(inner).start(kind(app(), 10), model(), num_rounds=5)
        picked.append(inner.picked)
    assert picked[0] == picked[1]
