"""A round whose strategy fails has no result: nothing is lost, and the next round begins."""

import re
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedAvgM

import fedcomp
from fedcomp.errors import DivergedError
from fedcomp.flower import EF21, CompressedStrategy, LocalGrid
from fedcomp.sync.publisher import Publisher
from fedcomp.sync.replica import start_replica
from fedcomp.wire.layout import layout_of
from tests.flower.toy import Aggregate, Messages, Watching, app, floats, model, state_of, sum_of_updates

NODES = 4
STC = fedcomp.stc(density=0.1)


class Stumbling(Watching):
    """Raises an error, or makes a model of infinities, in some rounds, after the replies have been read."""

    def __init__(self, rounds: tuple[int, ...], *, diverges: bool = False) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.rounds, self.diverges = rounds, diverges

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        if server_round not in self.rounds:
            return super().aggregate_train(server_round, replies)
        arrays, metrics = FedAvg.aggregate_train(self, server_round, replies)
        if not self.diverges:
            raise KeyError("a bug of the user's")
        assert arrays is not None
        arrays["layer.bias"] = Array(np.full(25, 1e39))
        return arrays, metrics


@pytest.mark.parametrize("diverges", [False, True])
def test_a_failed_round_goes_back_to_the_nodes_and_the_next_one_begins(
    diverges: bool, flower_log: pytest.LogCaptureFixture
) -> None:
    inner = Stumbling((2, 5), diverges=diverges)
    strategy, grid = CompressedStrategy(inner, uplink=STC, downlink=STC), LocalGrid(app(), NODES)
    strategy.start(grid, model(), num_rounds=7)
    assert (strategy.round, strategy.version, strategy.failed_rounds) == (7, 5, (2, 5))
    what = "DivergedError: .*'layer.bias'.* float32" if diverges else 'KeyError: "a bug of the user\'s"'
    lines = [record.getMessage() for record in flower_log.records if "failed in round" in record.getMessage()]
    assert len(lines) == 2
    assert all(re.search(what, line) for line in lines)
    for node, context in grid.contexts.items():
        arrived, kept = inner.acked[node], state_of(context).memory["residual"]
        np.testing.assert_allclose(arrived + kept, sum_of_updates(context), atol=1e-4)
    sent = floats(strategy.arrays) - floats(model())
    np.testing.assert_allclose(sent + strategy.publisher.memory["residual"], inner.means, atol=1e-4)


def test_a_run_without_any_result_ends_with_the_error() -> None:
    strategy, grid = CompressedStrategy(Stumbling((1, 2, 3)), uplink=STC), LocalGrid(app(), NODES)
    with pytest.raises(KeyError, match="a bug") as caught:
        strategy.start(grid, model(), num_rounds=3)
    assert caught.value.__notes__ == ["fedcomp: no round has had a result; 3 failed, the last one is round 3"]
    strategy.inner.rounds = ()  # type: ignore[attr-defined]
    strategy.start(grid, model(), num_rounds=2)
    assert (strategy.version, strategy.failed_rounds) == (2, ())


def test_a_metrics_function_that_fails_does_not_end_the_run(flower_log: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> MetricRecord:
        raise ZeroDivisionError

    strategy = CompressedStrategy(FedAvg(evaluate_metrics_aggr_fn=fail))
    result = strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
    assert (strategy.version, strategy.failed_rounds) == (2, ())
    assert result.evaluate_metrics_clientapp == {}
    assert "evaluation failed in round 1 and has no result: ZeroDivisionError" in flower_log.text


def test_after_a_failed_round_the_estimates_of_ef21_start_from_zero() -> None:
    """The strategy has summed increments that their nodes take back."""

    class Failing(EF21):
        def apply(self, result: Any) -> Any:
            parameters = super().apply(result)
            if len(failures) < 3:
                failures.append(0)
                if len(failures) == 3:
                    raise RuntimeError("late")
            return parameters

    failures: list[int] = []
    inner = Failing(fraction_evaluate=0.0)
    strategy, grid = CompressedStrategy(inner, uplink=fedcomp.ef21(density=0.2)), LocalGrid(app(), NODES)
    strategy.start(grid, model(), num_rounds=8)
    assert strategy.failed_rounds == (3,)
    estimates = sum(state_of(context).memory["estimate"].astype(np.float64) for context in grid.contexts.values())
    found = np.concatenate([inner.estimate[name].ravel() for name in ("layer.weight", "layer.bias")])
    np.testing.assert_allclose(found, estimates, atol=1e-6)


def test_a_strategy_of_integers_alone_may_fail_too() -> None:
    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(message.content, reply_to=message)

    class Failing(FedAvg):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            if server_round == 1:
                raise ValueError("no trees")
            return ArrayRecord({"trees": Array(np.arange(4))}), None

    strategy = CompressedStrategy(Failing(fraction_evaluate=0.0))
    grid = LocalGrid(client_app, NODES)
    strategy.start(grid, ArrayRecord({"trees": Array(np.arange(3))}), num_rounds=2, train_config=ConfigRecord())
    assert strategy.failed_rounds == (1,)


def test_a_change_that_cannot_be_published_leaves_nothing_in_the_memory() -> None:
    arrays = {"w": np.array([3e38, 0, 0], np.float32)}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    stc = fedcomp.stc(density=0.3)
    publisher.publish(np.array([0, 3, 1], np.float32), b"", stc, seed=0)
    before = publisher.memory["residual"].copy()
    with pytest.raises(DivergedError, match="version 2"):
        publisher.publish(np.array([2e38, 1, 1], np.float32), b"", stc, seed=0)
    np.testing.assert_array_equal(publisher.memory["residual"], before)


def test_after_a_failed_round_momentum_steps_from_the_published_model() -> None:
    class Failing(FedAvgM):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            arrays, metrics = super().aggregate_train(server_round, replies)
            if server_round == 2:
                raise RuntimeError("late")
            return arrays, metrics

    inner = Failing(server_momentum=0.5, fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=STC, downlink=STC)
    strategy.start(LocalGrid(app(), NODES), model(), num_rounds=2)
    assert strategy.failed_rounds == (2,)
    assert inner.current_arrays is not None
    np.testing.assert_array_equal(floats(inner.current_arrays), floats(strategy.arrays))
