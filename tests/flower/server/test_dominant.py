"""A tensor that changes far more than all others takes their share of what is sent: the log names it, with the remedy."""

import logging
import re
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM, FedMedian, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, to_record
from tests.flower.toy import Arrays, training

N = 2_000
LINE = re.compile(r"round (\d+): ([\d.]+) % of the squared change is in (\d+) of ([\d,]+) entries.* exact=\[(.*)\]")
FOUND = list[tuple[str, ...]]


def run(
    growth: float,
    log: pytest.LogCaptureFixture,
    exact: tuple[str, ...] = (),
    compressor: fedcomp.Compressor | None = None,
    rounds: int = 5,
    inner: Strategy | None = None,
) -> tuple[float, FOUND]:
    """Train weights towards 1 beside a count that grows by `growth`; return the squared error of the weights, and the lines."""
    start = {name: np.zeros(N, np.float32) for name in ("w", "frozen")} | {"count": np.zeros((), np.float32)}

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        return arrays | {"w": arrays["w"] + (1 - arrays["w"]) / 2, "count": arrays["count"] + np.float32(growth)}

    log.clear()
    inner = inner or FedAvg(fraction_evaluate=0)
    strategy = CompressedStrategy(inner, uplink=compressor, downlink=fedcomp.dense(), exact=exact)
    strategy.start(LocalGrid(training(step), 2), to_record(start), num_rounds=rounds)
    warnings = [record.getMessage() for record in log.records if record.levelno == logging.WARNING]
    found = [match.groups() for each in warnings if (match := LINE.search(each)) is not None]
    return float(np.mean((strategy.arrays["w"].numpy() - 1) ** 2)), found


def test_the_log_names_a_count_once_and_what_it_advises_helps(flower_log: pytest.LogCaptureFixture) -> None:
    eden = fedcomp.eden(bits=2)
    error, [(number, share, entries, total, names)] = run(10_000, flower_log, compressor=eden)
    assert (number, share, entries, total, names) == ("1", "100.0", "1", "2,001", "'count'"), (
        "none of the frozen entries"
    )
    advised, found = run(10_000, flower_log, exact=("count",), compressor=eden)
    assert found == []
    assert advised < 0.01 < 0.5 < error


class Own(FedAvg):
    """Aggregates with code of its own, as strategies do that send counts or sums."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the result of `FedAvg`."""
        return super().aggregate_train(server_round, replies)


@pytest.mark.parametrize("inner", [Own, FedAvgM, FedMedian])
def test_a_count_is_named_whatever_the_strategy_makes_of_the_updates(
    inner: type[FedAvg], flower_log: pytest.LogCaptureFixture
) -> None:
    _, [(number, *_, names)] = run(
        10_000, flower_log, compressor=fedcomp.eden(bits=2), inner=inner(fraction_evaluate=0)
    )
    assert (number, names) == ("1", "'count'")


@pytest.mark.parametrize("inner", [FedAvg, Own])
def test_the_noise_of_the_others_does_not_hide_a_count(
    inner: type[FedAvg], flower_log: pytest.LogCaptureFixture
) -> None:
    """Below one bit an entry, the decoded update has more noise than anything else."""
    compressor, strategy = fedcomp.crosspolytope(bits=0.2), inner(fraction_evaluate=0)
    _, [(number, *_)] = run(10_000, flower_log, compressor=compressor, rounds=4, inner=strategy)
    assert number in ("1", "2")


def test_a_count_that_dominates_late_is_named_late(flower_log: pytest.LogCaptureFixture) -> None:
    _, [(number, *_)] = run(5, flower_log, compressor=fedcomp.eden(bits=4), rounds=12)
    assert number == "8", "the weights are near their optimum"


@pytest.mark.parametrize(
    ("growth", "compressor"),
    [(0, None), (1, None)]
    + [(10_000, fedcomp.parse(text)) for text in ("dense", "natural", "cgx(bits=4)", "terngrad")],
)
def test_no_line_where_nothing_is_lost(
    growth: float, compressor: fedcomp.Compressor | None, flower_log: pytest.LogCaptureFixture
) -> None:
    assert run(growth, flower_log, compressor=compressor, rounds=2)[1] == []


def test_the_bias_of_a_regression_on_rare_words_is_a_weight(flower_log: pytest.LogCaptureFixture) -> None:
    """It has two thirds of the squared change, and no other weight drowns."""
    rng = np.random.default_rng(1)
    rare = rng.standard_normal((4_000, 2)).astype(np.float32) * np.float32(np.sqrt(0.5 / 4_000))

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        own = rare[:, int(context.node_config["partition-id"])]
        return {"w": arrays["w"] + own, "b": arrays["b"] + np.float32(np.sqrt(0.5))}

    first = {"w": np.zeros(4_000, np.float32), "b": np.zeros(1, np.float32)}
    CompressedStrategy(FedAvg(fraction_evaluate=0)).start(LocalGrid(training(step), 2), to_record(first), num_rounds=8)
    assert "squared change" not in flower_log.text


def test_a_slow_server_is_no_sign_of_a_count(flower_log: pytest.LogCaptureFixture) -> None:
    """Its step is smaller than the noise of the updates: what is left of it is no share of anything."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        rng = np.random.default_rng([number, int(context.node_config["partition-id"])])
        return {"w": arrays["w"] + rng.standard_normal(4_000, np.float32), "b": arrays["b"] + np.float32(10)}

    first = {"w": np.zeros(4_000, np.float32), "b": np.zeros(1, np.float32)}
    inner = FedAvgM(fraction_evaluate=0, server_learning_rate=0.1)
    strategy = CompressedStrategy(inner, uplink=fedcomp.eden(bits=2), downlink=fedcomp.dense())
    strategy.start(LocalGrid(training(step), 2), to_record(first), num_rounds=2)
    assert "squared change" not in flower_log.text


def test_what_chance_leaves_of_updates_that_cancel_out_is_no_sign_of_a_count(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    """As where most nodes return the model as it was: an ordinary bias was said to have 100 % of the change."""

    def step(arrays: Arrays, context: Context, number: int) -> Arrays:
        sign = np.float32(2 * int(context.node_config["partition-id"]) - 1)
        rng = np.random.default_rng(number)
        return {name: array + sign * rng.standard_normal(array.size, np.float32) for name, array in arrays.items()}

    first = {"w": np.zeros(4_000, np.float32), "b": np.zeros(10, np.float32)}
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0), uplink=fedcomp.eden(bits=1), downlink=fedcomp.dense())
    strategy.start(LocalGrid(training(step), 2), to_record(first), num_rounds=64)
    assert "squared change" not in flower_log.text


def test_no_line_where_nothing_is_learned(flower_log: pytest.LogCaptureFixture) -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0))
    strategy.start(
        LocalGrid(training(lambda arrays, *_: arrays), 2), to_record({"w": np.ones(N, np.float32)}), num_rounds=2
    )
    assert "squared change" not in flower_log.text
