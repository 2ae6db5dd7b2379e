"""`on_round` gets each round once, when it is over, with its traffic and all metrics that exist."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, Round, Traffic
from fedcomp.flower.server.rounds.round_hook import OnRound
from tests.flower.toy import app, model


def wrapped(on_round: OnRound | None, evaluate: float = 1.0, **settings: float) -> CompressedStrategy:
    """Return FedAvg with STC both ways and this hook."""
    inner = FedAvg(fraction_train=1.0, fraction_evaluate=evaluate)
    stc = fedcomp.stc(density=0.05)
    return CompressedStrategy(inner, uplink=stc, downlink=stc, on_round=on_round, **settings)  # type: ignore[arg-type]


def test_the_scalars_of_a_round_are_its_numbers_by_name() -> None:
    done = Round(
        3,
        MetricRecord({"loss": 0.5, "by-class": [1.0, 2.0]}),
        server_metrics=MetricRecord({"accuracy": 0.75}),
        traffic=Traffic(uplink_bytes=10, downlink_bytes=30),
        total=Traffic(uplink_bytes=50, downlink_bytes=50, dense_uplink_bytes=400, dense_downlink_bytes=600),
    )
    scalars = done.scalars()
    assert {name: scalars[name] for name in ("train/loss", "server/accuracy", "total/ratio")} == {
        "train/loss": 0.5, "server/accuracy": 0.75, "total/ratio": 10.0,
    }  # fmt: skip
    assert (scalars["round/uplink_bytes"], scalars["total/downlink_bytes"]) == (10, 50)
    assert not [name for name in scalars if name.startswith("evaluate/") or name.endswith("by-class")]
    assert "total/ratio" not in Round(1).scalars()  # nothing was sent


def test_each_round_has_all_its_metrics_and_its_traffic_when_it_is_over() -> None:
    events: list[str] = []
    rounds: list[Round] = []

    def on_round(done: Round) -> None:
        events.append(f"round {done.number}")
        rounds.append(done)

    seen: list[MetricRecord | None] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        events.append(f"evaluate {number}")
        seen.append(strategy.evaluate_metrics)
        return MetricRecord({"size": float(len(arrays))})

    strategy = wrapped(on_round)
    result = strategy.start(LocalGrid(app(), 3), model(), num_rounds=2, evaluate_fn=evaluate)
    assert events == ["evaluate 0", "evaluate 1", "round 1", "evaluate 2", "round 2"]
    for done in rounds:
        assert done.train_metrics == result.train_metrics_clientapp[done.number]
        assert done.evaluate_metrics == result.evaluate_metrics_clientapp[done.number]
        assert done.server_metrics == result.evaluate_metrics_serverapp[done.number]
        assert done.traffic == strategy.ledger.of_round(done.number)
    assert seen == [None, *(done.evaluate_metrics for done in rounds)]
    first, last = rounds
    assert first.total == first.traffic
    assert last.total == strategy.ledger.total()
    assert last.total.uplink_bytes == first.traffic.uplink_bytes + last.traffic.uplink_bytes > 0


def test_metrics_that_do_not_exist_are_none() -> None:
    rounds: list[Round] = []
    wrapped(rounds.append, evaluate=0.0).start(LocalGrid(app(), 3), model(), num_rounds=2)
    assert [(done.number, done.evaluate_metrics, done.server_metrics) for done in rounds] == [
        (1, None, None), (2, None, None),
    ]  # fmt: skip
    assert all(done.train_metrics for done in rounds)


def test_numbers_and_totals_go_on_in_a_second_start_and_after_a_checkpoint(tmp_path: Path) -> None:
    rounds: list[Round] = []
    grid = LocalGrid(app(), 3)
    strategy = wrapped(rounds.append)
    strategy.start(grid, model(), num_rounds=2)
    strategy.start(grid, model(), num_rounds=1)
    strategy.save(tmp_path / "state")
    resumed = wrapped(rounds.append)
    resumed.load(tmp_path / "state")
    resumed.start(grid, model(), num_rounds=2)
    assert [done.number for done in rounds] == [1, 2, 3, 4, 5]
    sums = [done.total.uplink_bytes for done in rounds]
    assert sums == [sum(done.traffic.uplink_bytes for done in rounds[: end + 1]) for end in range(5)]


class StartsItself(FedAvg):
    """FedAvg with a loop of its own, as Flower's advanced-pytorch has one: it evaluates before the nodes do."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        result, arrays = Result(), initial_arrays
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, train_config or ConfigRecord(), grid)
            trained, _ = self.aggregate_train(number, grid.send_and_receive(messages, timeout=timeout))
            arrays = trained or arrays
            if evaluate_fn is not None:
                evaluate_fn(number, arrays)
            messages = self.configure_evaluate(number, arrays, evaluate_config or ConfigRecord(), grid)
            self.aggregate_evaluate(number, grid.send_and_receive(messages, timeout=timeout))
        return result


def test_a_strategy_with_a_start_of_its_own_reports_its_rounds_with_all_metrics() -> None:
    rounds: list[Round] = []
    grid, strategy = LocalGrid(app(), 3), CompressedStrategy(StartsItself(), on_round=rounds.append)
    for _ in range(2):
        strategy.start(grid, model(), 2, evaluate_fn=lambda number, _: MetricRecord({"number": number}))
    assert [done.number for done in rounds] == [1, 2, 3, 4]
    assert [done.server_metrics for done in rounds] == [MetricRecord({"number": done.number}) for done in rounds]
    assert all(done.train_metrics and done.evaluate_metrics for done in rounds)


def test_a_hook_that_raises_ends_the_run_and_its_exception_names_the_round() -> None:
    numbers: list[int] = []

    def on_round(done: Round) -> None:
        numbers.append(done.number)
        if done.number == 2:
            raise OSError("the disk is full")

    grid, strategy = LocalGrid(app(), 3), wrapped(on_round)
    with pytest.raises(OSError, match="the disk is full") as raised:
        strategy.start(grid, model(), num_rounds=5)
    assert "round 2" in raised.value.__notes__[0]
    assert (strategy.round, strategy.version) == (2, 2)
    strategy.start(grid, model(), num_rounds=1)
    assert numbers == [1, 2, 3]


def test_the_last_round_is_reported_before_start_returns_and_may_raise_too() -> None:
    def on_round(done: Round) -> None:
        raise KeyError(done.number)

    with pytest.raises(KeyError, match="1"):
        wrapped(on_round).start(LocalGrid(app(), 3), model(), num_rounds=1)


def test_a_round_that_does_not_end_is_not_reported() -> None:
    rounds: list[Round] = []

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        if number == 2:
            raise RuntimeError("no test data")

    grid, strategy = LocalGrid(app(), 3), wrapped(rounds.append)
    with pytest.raises(RuntimeError, match="no test data"):
        strategy.start(grid, model(), num_rounds=3, evaluate_fn=evaluate)
    assert [done.number for done in rounds] == [1]
    strategy.start(grid, model(), num_rounds=1)
    assert [done.number for done in rounds] == [1, 3]


def test_a_hook_that_draws_random_numbers_does_not_change_the_run() -> None:
    models: list[bytes] = []
    hooks: list[OnRound | None] = [None, lambda _: random.random()]
    for on_round in hooks:
        random.seed(5)
        inner = FedAvg(fraction_train=0.4, fraction_evaluate=0.0)
        strategy = CompressedStrategy(inner, on_round=on_round)
        strategy.start(LocalGrid(app(), 10), model(), num_rounds=4)
        models.append(strategy.arrays["layer.weight"].data)
    assert models[0] == models[1]


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ValueError, match="'wandb'"):
        wrapped("wandb")  # type: ignore[arg-type]
