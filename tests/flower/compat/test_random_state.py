import random
from collections.abc import Iterable
from contextlib import suppress

import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.flower import CompressedStrategy, LocalGrid
from fedcomp.flower.compat import IsolatedRandom
from tests.flower.toy import Messages, app, model


def test_draws_inside_and_outside_do_not_change_each_other() -> None:
    random.seed(1)
    expected = [random.random() for _ in range(10)]
    random.seed(1)
    own = IsolatedRandom()
    own.hold()
    outside, inside = [], []
    for _ in range(5):
        outside.append(random.random())
        own.hold()  # starts only once
        with own.used():
            inside += [random.random(), random.random()]
    assert inside == expected
    assert outside == expected[:5]


class Drawn(FedAvg):
    """FedAvg that records the nodes that it picks."""

    def __init__(self) -> None:
        super().__init__(fraction_train=0.4, fraction_evaluate=0.4)
        self.picked: list[list[int]] = []

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.picked.append([message.metadata.dst_node_id for message in messages])
        return messages


def test_a_thread_that_draws_like_flowers_heartbeat_does_not_change_the_picked_nodes() -> None:
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


class Busy(LocalGrid):
    """A grid that draws a random number while it lists its nodes, as Flower's heartbeat may."""

    def get_node_ids(self) -> Iterable[int]:
        random.uniform(0.7, 0.9)
        return super().get_node_ids()


def test_draws_while_the_nodes_are_listed_change_nothing() -> None:
    picked = []
    for kind in (LocalGrid, Busy):
        inner = Drawn()
        random.seed(8)
        CompressedStrategy(inner).start(kind(app(), 10), model(), num_rounds=5)
        picked.append(inner.picked)
    assert picked[0] == picked[1]


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_run_of_the_process_picks_the_nodes_that_plain_flower_picks(fails: bool) -> None:
    def stop(number: int, _: ArrayRecord) -> None:
        if fails and number == 2:
            raise KeyboardInterrupt

    picked = []
    for wrap in (False, True):
        inners = [Drawn(), Drawn()]
        random.seed(8)
        for inner in inners:
            strategy: Strategy = CompressedStrategy(inner) if wrap else inner
            with suppress(KeyboardInterrupt):
                strategy.start(LocalGrid(app(with_mod=wrap), 10), model(), num_rounds=3, evaluate_fn=stop)
        picked.append([inner.picked for inner in inners])
    assert picked[0] == picked[1]
    assert picked[0][0] != picked[0][1], "the runs differ"
