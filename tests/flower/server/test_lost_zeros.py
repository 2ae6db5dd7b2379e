"""Pruned weights that compression makes something else than 0: the log says so, once, and what it advises keeps them."""

import re

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, to_record
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, training

SIDE = 40
MASK = np.random.default_rng(5).random((SIDE, SIDE)) < 0.3
LINE = re.compile(r"round (\d+): entries of (.*) that were 0 .* of the (\w+);")


def first() -> Arrays:
    """Return a pruned matrix, one that is not, and a bias of zeros."""
    rng = np.random.default_rng(7)
    pruned, whole = rng.standard_normal((2, SIDE, SIDE)).astype(np.float32)
    return {"pruned": pruned * MASK, "whole": whole, "bias": np.zeros(SIDE, np.float32)}


def masked(arrays: Arrays, context: Context, number: int) -> Arrays:
    """Train for a step, and keep the zeros of the pruned matrix."""
    rng = np.random.default_rng([context.node_id, number])
    trained = {name: array + 0.1 * rng.standard_normal(array.shape, np.float32) for name, array in arrays.items()}
    return trained | {"pruned": trained["pruned"] * MASK}


class Pruning(FedAvg):
    """FedAvg that sets the smaller half of the second matrix to 0."""

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        found = arrays_of(arrays)
        whole = np.abs(found["whole"])
        return to_record(found | {"whole": np.where(whole < np.median(whole), 0, found["whole"])}), metrics


def run(
    uplink: str, downlink: str, log: pytest.LogCaptureFixture, inner: type[FedAvg] = FedAvg
) -> tuple[Arrays, list[tuple[str, ...]]]:
    """Return the model after five rounds, and what the lines in the log say."""
    strategy = CompressedStrategy(
        inner(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink), downlink=fedcomp.parse(downlink)
    )
    strategy.start(LocalGrid(training(masked), 4), to_record(first()), num_rounds=5)
    lines = [match.groups() for record in log.records if (match := LINE.search(record.getMessage())) is not None]
    return arrays_of(strategy.arrays), lines


@pytest.mark.parametrize("uplink", ["auto()", "eden(bits=2)", "crosspolytope(bits=0.3)"])
def test_an_uplink_that_rotates_loses_zeros(uplink: str, flower_log: pytest.LogCaptureFixture) -> None:
    model, lines = run(uplink, "dense()", flower_log)
    assert lines == [("1", "'pruned'", "uplink")], "once, and not the bias"
    assert np.count_nonzero(model["pruned"]) == SIDE**2


@pytest.mark.parametrize("downlink", ["eden(bits=2)", "auto()"])
def test_a_downlink_that_rotates_loses_zeros(downlink: str, flower_log: pytest.LogCaptureFixture) -> None:
    model, lines = run("stc(density=0.25)", downlink, flower_log)
    assert lines == [("1", "'pruned'", "downlink")]
    assert np.count_nonzero(model["pruned"]) == SIDE**2


def test_what_is_sent_late_is_not_lost(flower_log: pytest.LogCaptureFixture) -> None:
    """A residual of the server reaches entries that were 0, in a round in which no node changes them."""

    def step(arrays: Arrays, _: Context, number: int) -> Arrays:
        grown = arrays["w"].copy()
        if number == 1:  # the last entries grow least, and wait
            grown += np.linspace(1, 0.1, grown.size, dtype=np.float32)
        return {"odd": arrays["odd"] + number, "w": grown}

    start = {"odd": np.zeros(3, np.float32), "w": np.zeros(200, np.float32)}
    strategy = CompressedStrategy(
        FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.topk(density=0.25)
    )
    strategy.start(LocalGrid(training(step), 2), to_record(start), num_rounds=4)
    assert np.count_nonzero(strategy.arrays["w"].numpy()) > 100
    assert not LINE.search(flower_log.text)


@pytest.mark.parametrize("downlink", ["eden(bits=2)", "stc(density=0.05)"])
def test_zeros_of_a_strategy_need_a_lossless_downlink(downlink: str, flower_log: pytest.LogCaptureFixture) -> None:
    model, lines = run("dense()", downlink, flower_log, Pruning)
    assert ("1", "'whole'", "downlink") in lines or lines == [("1", "'pruned', 'whole'", "downlink")]
    assert len(lines) == 1
    assert np.count_nonzero(model["whole"]) > 0.6 * SIDE**2


@pytest.mark.parametrize(
    ("uplink", "downlink"),
    [("dense()", "dense()"), ("stc(density=0.25)", "stc(density=0.1)"), ("topk(density=0.25)", "qsgd(levels=7)")],
)
def test_zeros_that_are_kept_are_not_mentioned(
    uplink: str, downlink: str, flower_log: pytest.LogCaptureFixture
) -> None:
    model, lines = run(uplink, downlink, flower_log)
    assert lines == []
    np.testing.assert_array_equal(model["pruned"] != 0, MASK)


@pytest.mark.parametrize(
    "uplink", ["dense()", "topk(density=0.9)", "auto()", "eden(bits=1)", "crosspolytope(bits=0.5)"]
)
def test_zeros_that_the_nodes_train_are_not_lost(uplink: str, flower_log: pytest.LogCaptureFixture) -> None:
    """Such as those of a sparse first model."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink), downlink=fedcomp.dense())
    free = training(lambda arrays, _, number: {name: array + number for name, array in arrays.items()})
    strategy.start(LocalGrid(free, 4), to_record(first()), num_rounds=2)
    assert not LINE.search(flower_log.text)


def test_a_few_zeros_are_not_mentioned(flower_log: pytest.LogCaptureFixture) -> None:
    start = {"w": np.ones((SIDE, SIDE), np.float32)}
    start["w"][0] = 0
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    grown = training(lambda arrays, *_: {"w": arrays["w"] * np.float32(1.1)})
    strategy.start(LocalGrid(grown, 4), to_record(start), num_rounds=2)
    assert not LINE.search(flower_log.text)


def test_zeros_of_a_strategy_are_kept_by_what_the_log_advises(flower_log: pytest.LogCaptureFixture) -> None:
    model, lines = run("dense()", "dense()", flower_log, Pruning)
    assert lines == []
    assert np.count_nonzero(model["whole"]) == SIDE**2 // 2
