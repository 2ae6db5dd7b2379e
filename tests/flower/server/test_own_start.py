"""Strategies whose class overrides `start`: their files, best models and logs are kept, and messages are compressed."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    Result,
    Strategy,
)

import fedcomp
from fedcomp.flower import Checkpoint, CompressedStrategy, LocalGrid
from tests.flower.toy import Aggregate, Messages, app, floats, model

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class KeepsBest(FedAvg):
    """Flower's advanced-pytorch in short: a `start` with a loop of its own, the best model, and a file of results."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.best = -np.inf
        self.best_arrays = ArrayRecord()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        self.summary()
        result, arrays = Result(), initial_arrays
        train_config = ConfigRecord() if train_config is None else train_config
        evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, train_config, grid)
            aggregated, metrics = self.aggregate_train(number, grid.send_and_receive(messages, timeout=timeout))
            if aggregated is not None and metrics is not None:
                arrays = result.arrays = aggregated
                result.train_metrics_clientapp[number] = metrics
            messages = self.configure_evaluate(number, arrays, evaluate_config, grid)
            evaluated = self.aggregate_evaluate(number, grid.send_and_receive(messages, timeout=timeout))
            if evaluated is not None:
                result.evaluate_metrics_clientapp[number] = evaluated
            if evaluate_fn is not None and (central := evaluate_fn(number, arrays)) is not None:
                result.evaluate_metrics_serverapp[number] = central
                self.keep(cast(float, central["accuracy"]), arrays)
                with (self.folder / "results.jsonl").open("a") as file:
                    file.write(json.dumps({"round": number} | dict(central)) + "\n")
        return result

    def keep(self, accuracy: float, arrays: ArrayRecord) -> None:
        if accuracy > self.best:
            self.best, self.best_arrays = accuracy, arrays


class Announces(FedAdam):
    """A `start` that calls Flower's, and an `aggregate_train` of its own that counts replies."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.events: list[str] = []
        self.replies = 0

    def start(self, *args: Any, **kwargs: Any) -> Result:
        self.events.append("begin")
        result = super().start(*args, **kwargs)
        self.events.append("end")
        return result

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        self.replies += len(replies)
        return super().aggregate_train(server_round, replies)


class Delegates(Strategy):
    """A wrapper whose `start` leaves everything to the strategy inside, past its own steps."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **kwargs: Any) -> Result:
        return self.strategy.start(grid, initial_arrays, *args, **kwargs)

    def summary(self) -> None:
        self.strategy.summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregate:
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)


def compressed(inner: Strategy, **settings: Any) -> CompressedStrategy:
    stc = fedcomp.stc(density=0.1)
    return CompressedStrategy(inner, uplink=stc, downlink=stc, **settings)


def accuracy(number: int, arrays: ArrayRecord) -> MetricRecord:
    """A made-up accuracy, best in round 2."""
    assert floats(arrays).size
    return MetricRecord({"accuracy": 1.0 - abs(number - 2) / 10})


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_a_loop_of_its_own_writes_its_files_and_keeps_its_best_model(tmp_path: Path) -> None:
    inner = KeepsBest(tmp_path)
    strategy = compressed(inner)
    seen: list[ArrayRecord] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(arrays)
        return accuracy(number, arrays)

    result = strategy.start(LocalGrid(app(), 3), model(), 4, evaluate_fn=evaluate)
    assert [line["round"] for line in lines(tmp_path)] == [1, 2, 3, 4]
    assert inner.best == 1.0
    assert inner.best_arrays is seen[1], "the model of round 2"
    assert result.arrays is strategy.arrays
    assert list(result.train_metrics_clientapp) == list(result.evaluate_metrics_clientapp) == [1, 2, 3, 4]
    assert strategy.version == 4
    assert strategy.ledger.dense_uplink_bytes > 5 * strategy.ledger.uplink_bytes


def test_a_start_that_calls_flowers_gives_the_same_model_as_without_it() -> None:
    with_start, without = Announces(), FedAdam()
    results = [compressed(inner).start(LocalGrid(app(), 3), model(), 3).arrays for inner in (with_start, without)]
    assert with_start.events == ["begin", "end"]
    assert with_start.replies == 9, "its own aggregate_train saw each reply"
    np.testing.assert_allclose(floats(results[0]), floats(results[1]), atol=1e-6)


def test_called_twice_it_goes_on_and_counts_on(tmp_path: Path) -> None:
    inner = KeepsBest(tmp_path)
    strategy, grid = compressed(inner), LocalGrid(app(), 3)
    strategy.start(grid, model(), 2, evaluate_fn=accuracy)
    result = strategy.start(grid, model(), 2, evaluate_fn=accuracy)
    assert strategy.round == strategy.version == 4
    assert list(result.train_metrics_clientapp) == list(result.evaluate_metrics_serverapp) == [3, 4]
    assert inner.best == 1.0
    assert lines(tmp_path)[2]["accuracy"] == 0.9, "evaluate_fn gets the round of the whole run"


def test_it_continues_from_a_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    grid = LocalGrid(app(), 3)
    first = compressed(Announces(), checkpoint=Checkpoint(tmp_path / "saved.npz"))
    first.start(grid, model(), 2)
    second = compressed(Announces())
    second.load(tmp_path / "saved.npz")
    second.start(grid, model(), 2)
    whole = compressed(Announces())
    whole.start(LocalGrid(app(), 3), model(), 4)
    assert floats(second.arrays).tolist() == floats(whole.arrays).tolist()
    assert cast(Announces, second.inner).replies == 12, "the count of the first run is in the checkpoint"


def test_a_returned_model_of_its_own_is_kept() -> None:
    class ReturnsInitial(FedAvg):
        def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **kwargs: Any) -> Result:
            result = super().start(grid, initial_arrays, *args, **kwargs)
            result.arrays = initial_arrays
            return result

    strategy = compressed(ReturnsInitial())
    result = strategy.start(LocalGrid(app(), 3), model(), 2)
    assert floats(result.arrays).tolist() == floats(model()).tolist() != floats(strategy.arrays).tolist()


def test_a_wrapper_around_another_strategy_has_its_start_called() -> None:
    class Private(DifferentialPrivacyServerSideFixedClipping):
        events: tuple[str, ...] = ()

        def start(self, *args: Any, **kwargs: Any) -> Result:
            self.events = (*self.events, "begin")
            return super().start(*args, **kwargs)

    inner = Private(FedAvg(), 1e-6, 1.0, 3)
    strategy = compressed(inner)
    strategy.start(LocalGrid(app(), 3), model(), 2)
    assert inner.events == ("begin",)
    assert strategy.version == 2


def test_a_start_that_sends_past_the_steps_is_refused_before_anything_is_sent() -> None:
    grid = LocalGrid(app(), 3)
    with pytest.raises(ValueError, match=r"Delegates sends a model that is not compressed to node \d"):
        compressed(Delegates(FedAvg())).start(grid, model(), 2)
    assert not grid.seconds


def test_a_start_with_other_arguments_is_refused_by_their_names() -> None:
    class Short(FedAvg):
        def start(self, grid: Grid, initial_arrays: ArrayRecord) -> Result:  # type: ignore[override]
            return super().start(grid, initial_arrays)

    with pytest.raises(ValueError, match=r"Short\.start cannot be called: .*num_rounds"):
        compressed(Short()).start(LocalGrid(app(), 2), model(), 2)


def test_a_model_that_is_not_compressed_has_its_strategys_start_called() -> None:
    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, _: Any) -> Message:
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)

    inner = Announces(fraction_evaluate=0.0)
    trees = ArrayRecord({"trees": Array(np.arange(9, dtype=np.uint8))})
    compressed(inner).start(LocalGrid(client_app, 2), trees, 1)
    assert inner.events == ["begin", "end"]
