import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedAvgM, Krum, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, DynamicSampling, LocalGrid
from tests.flower.strategies.by_hand import grid, one_round, record, values
from tests.flower.toy import Messages, app, floats, model, training

MODEL = record({"weight": [0.0]})


def _num_messages(strategy: Strategy, server_round: int, nodes: LocalGrid) -> int:
    return len(list(strategy.configure_train(server_round, MODEL, ConfigRecord(), nodes)))


def test_the_number_of_nodes_decays_as_in_the_paper() -> None:
    sampling, nodes = DynamicSampling(FedAvg(), beta=0.1), grid(100)
    # 100 exp(-0.1 t) for t = 0, 1, 10 and 100: 100, 90.5, 36.8 and 0.005
    assert [_num_messages(sampling, t + 1, nodes) for t in (0, 1, 10, 100)] == [100, 91, 37, 2]


@pytest.mark.parametrize("num_nodes", [2, 3, 7, 50, 100])
@pytest.mark.parametrize("fraction", [0.07, 0.1, 1 / 3, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.01, 0.1])
def test_the_number_of_nodes_is_rounded_up_and_at_least_two(num_nodes: int, fraction: float, beta: float) -> None:
    sampling, nodes = DynamicSampling(FedAvg(fraction_train=fraction), beta=beta), grid(num_nodes)
    for t in (0, 1, 2, 5, 20, 60):
        exact = fraction * math.exp(-beta * t) * num_nodes
        size = _num_messages(sampling, t + 1, nodes)
        assert size == 2 if exact <= 2 else exact - 1e-6 <= size < exact + 1


@pytest.mark.parametrize(
    ("inner", "server_round", "num_nodes", "size"),
    [
        (FedAvg(fraction_train=0.07), 1, 100, 7),  # 0.07 * 100 is above 7 in floating point
        (FedAvg(min_train_nodes=1, min_available_nodes=1), 50, 1, 1),
        (FedAvg(fraction_train=0.1, min_train_nodes=1), 50, 9, 2),
        (FedAvg(min_train_nodes=5), 50, 9, 5),
        (FedAvg(fraction_train=0.0), 1, 9, 0),
    ],
)
def test_whole_numbers_and_the_inner_strategys_least_number_hold(
    inner: FedAvg, server_round: int, num_nodes: int, size: int
) -> None:
    beta = 0.0 if size == 7 else 1.0
    assert _num_messages(DynamicSampling(inner, beta=beta), server_round, grid(num_nodes)) == size


def test_the_inner_strategys_settings_are_restored_even_after_an_error() -> None:
    class Failing(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
            raise RuntimeError("no")

    inner, failing = FedAvg(fraction_train=0.9, min_train_nodes=3), Failing(fraction_train=0.9, min_train_nodes=3)
    _num_messages(DynamicSampling(inner, beta=0.5), 3, grid(20))
    with pytest.raises(RuntimeError, match="no"):
        _num_messages(DynamicSampling(failing, beta=0.5), 3, grid(20))
    assert (inner.fraction_train, inner.min_train_nodes) == (0.9, 3)
    assert (failing.fraction_train, failing.min_train_nodes) == (0.9, 3)


def test_evaluation_and_aggregation_are_those_of_the_inner_strategy() -> None:
    inner = FedAvgM(fraction_evaluate=0.5, server_learning_rate=0.5)
    sampling, nodes = DynamicSampling(inner, beta=1.0), grid(10)
    assert len(list(sampling.configure_evaluate(40, MODEL, ConfigRecord(), nodes))) == 5
    assert values(one_round(sampling, MODEL, [{"weight": [1.0]}, {"weight": [3.0]}])) == [1.0]
    assert sampling.aggregate_evaluate(1, []) is None


@pytest.mark.parametrize("inner", [FedAvg, Krum])
def test_without_decay_a_compressed_run_equals_the_unwrapped_one(inner: type[FedAvg]) -> None:
    stc, finals = fedcomp.stc(density=0.05), []
    for wrap in (False, True):
        plain = inner(fraction_train=1.0, fraction_evaluate=0.0)
        strategy: Strategy = DynamicSampling(plain, beta=0.0) if wrap else plain
        compressed = CompressedStrategy(strategy, uplink=stc, downlink=stc)
        finals.append(floats(compressed.start(LocalGrid(app(), 6), model(), num_rounds=5).arrays))
    np.testing.assert_array_equal(finals[0], finals[1])


def test_a_compressed_run_trains_fewer_nodes_each_round_also_across_a_second_start() -> None:
    strategy = CompressedStrategy(DynamicSampling(FedAvg(fraction_evaluate=0.0), beta=0.3))
    nodes = LocalGrid(app(), 10)
    first = strategy.start(nodes, model(), num_rounds=3)
    strategy.start(nodes, first.arrays, num_rounds=3)
    dense = sum(len(array.data) for array in model().values())
    trained = [strategy.ledger.of_round(number).dense_uplink_bytes // dense for number in range(1, 7)]
    assert trained == [10, 8, 6, 5, 4, 3]


def test_the_weights_of_replies_are_validated_inside_it() -> None:
    class Negative(LocalGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            for reply in super().send_and_receive(messages, timeout=timeout):
                if reply.metadata.src_node_id == 1:
                    reply.content["metrics"] = MetricRecord({"num-examples": -1})
                yield reply

    client_app = training(lambda given, context, _: {"weight": given["weight"] + context.node_id})
    inner = DynamicSampling(FedAvg(fraction_evaluate=0.0), beta=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.dense())
    result = strategy.start(Negative(client_app, 3), MODEL, num_rounds=1)
    assert values(result.arrays) == [2.5]
    assert strategy.ledger.of_round(1).refused == 1


@pytest.mark.parametrize("beta", [-0.1, math.inf, math.nan, None, "x", True])
def test_a_beta_out_of_range_and_an_inner_strategy_without_fraction_train_are_refused(beta: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"beta is {beta!r};")):
        DynamicSampling(FedAvg(), beta=beta)
    with pytest.raises(ValueError, match="CompressedStrategy"):
        DynamicSampling(CompressedStrategy(FedAvg()), beta=0.1)  # type: ignore[arg-type]


def test_the_fraction_is_of_the_nodes_that_the_inner_strategy_waits_for() -> None:
    class Growing(LocalGrid):
        connected = 2

        def get_node_ids(self) -> Iterable[int]:
            found = list(self.contexts)[: self.connected]
            self.connected = 10
            return found

    sampling = DynamicSampling(FedAvg(min_available_nodes=10), beta=0.1)
    assert _num_messages(sampling, 11, Growing(app(), 10)) == 4  # 10 exp(-1) is 3.7; of two nodes, all would train
