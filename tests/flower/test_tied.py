"""Tied tensors in a federation: sent once, equal on both sides, and never silently untied."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, to_record
from tests.flower.toy import Arrays, arrays_of, state_of, training

PAIR = ("embedding.weight", "output.weight")
seen: list[bool] = []


def _model() -> ArrayRecord:
    weight = np.random.default_rng(0).standard_normal((40, 25)).astype(np.float32)
    return to_record({PAIR[0]: weight, "bias": np.zeros(40, np.float32), PAIR[1]: weight})


def _train(given: Arrays, context: Context, server_round: int) -> Arrays:
    """Train as torch does with tied weights: both names hold the same values afterwards."""
    seen.append(np.array_equal(given[PAIR[0]], given[PAIR[1]]))
    rng = np.random.default_rng([context.node_id, server_round])
    weight = given[PAIR[0]] + rng.standard_normal((40, 25)).astype(np.float32) * 0.01
    return {PAIR[0]: weight, "bias": given["bias"] + 1, PAIR[1]: weight}


def _strategy(inner: FedAvg | None = None, tied: tuple[tuple[str, ...], ...] = (PAIR,)) -> CompressedStrategy:
    stc = fedcomp.stc(density=0.1)
    return CompressedStrategy(inner or FedAvg(fraction_evaluate=0.0), uplink=stc, downlink=stc, tied=tied)


@pytest.mark.parametrize("kind", [FedAvg, FedMedian, FedAdam])
def test_tied_tensors_stay_equal_on_both_sides(kind: type[FedAvg]) -> None:
    seen.clear()
    grid, strategy = LocalGrid(training(_train), 3), _strategy(kind(fraction_evaluate=0.0))
    result = arrays_of(strategy.start(grid, _model(), num_rounds=5).arrays)
    assert len(seen) == 15
    assert all(seen)
    np.testing.assert_array_equal(result[PAIR[0]], result[PAIR[1]])
    assert not np.array_equal(result[PAIR[0]], arrays_of(_model())[PAIR[0]])
    held = state_of(grid.contexts[1]).held.arrays()
    np.testing.assert_array_equal(held[PAIR[0]], held[PAIR[1]])


def test_tied_tensors_travel_once() -> None:
    sent = []
    for tied in ((), (PAIR,)):
        strategy = _strategy(tied=tied)
        strategy.start(LocalGrid(training(_train), 3), _model(), num_rounds=5)
        sent.append((strategy.ledger.uplink_bytes, strategy.ledger.downlink_bytes))
        assert strategy.ledger.refused == strategy.ledger.failed == 0
    assert sent[1][0] < 0.7 * sent[0][0]
    assert sent[1][1] < 0.6 * sent[0][1]


def test_a_reply_in_which_they_differ_is_an_error_that_names_them(flower_log: pytest.LogCaptureFixture) -> None:
    def untied(given: Arrays, context: Context, server_round: int) -> Arrays:
        trained = _train(given, context, server_round)
        return trained | {PAIR[1]: given[PAIR[1]]} if context.node_id == 2 else trained

    strategy = _strategy()
    strategy.start(LocalGrid(training(untied), 3), _model(), num_rounds=2)
    assert (strategy.version, strategy.ledger.by_node()[2].failed) == (2, 2)
    assert "'embedding.weight' and 'output.weight' are declared as tied" in flower_log.text


def test_equal_tensors_that_are_not_declared_are_named_once_with_the_setting(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    strategy = _strategy(tied=())
    for _ in range(2):
        strategy.start(LocalGrid(training(_train), 3), _model(), num_rounds=1)
    assert flower_log.text.count("tied=[('embedding.weight', 'output.weight')]") == 1
    flower_log.clear()
    _strategy().start(LocalGrid(training(_train), 3), _model(), num_rounds=1)
    assert "tied=" not in flower_log.text


def test_of_many_groups_of_equal_tensors_three_are_named_and_the_others_counted(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    values = {name: np.arange(40, dtype=np.float32) + ord(name) for name in "abcde"}
    groups = {f"{name}.{place}": values[name] for name in values for place in (1, 2)}
    _strategy(tied=()).start(LocalGrid(training(lambda given, context, _: given), 2), to_record(groups), num_rounds=1)
    assert "a.1 = a.2, b.1 = b.2, c.1 = c.2 and 2 groups more" in flower_log.text


def test_a_model_that_begins_untied_is_refused() -> None:
    arrays = arrays_of(_model())
    with pytest.raises(ValueError, match="different values"):
        _strategy().start(LocalGrid(training(_train), 3), to_record(arrays | {PAIR[1]: arrays[PAIR[1]] + 1}))


def test_a_run_continues_from_a_checkpoint_with_the_same_ties_alone(tmp_path: object) -> None:
    path = f"{tmp_path}/checkpoint"
    grid, strategy = LocalGrid(training(_train), 3), _strategy()
    strategy.start(grid, _model(), num_rounds=2)
    strategy.save(path)
    other, resumed = _strategy(tied=()), _strategy()
    other.load(path)
    with pytest.raises(ValueError, match="another model"):
        other.start(grid, _model(), num_rounds=1)
    resumed.load(path)
    result = arrays_of(resumed.start(grid, _model(), num_rounds=1).arrays)
    np.testing.assert_array_equal(result[PAIR[0]], result[PAIR[1]])
    assert resumed.ledger.refused == 0
