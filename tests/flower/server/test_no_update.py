"""A run that has trained nothing never ends as if it had: the user learns why, at the latest at the end."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.errors import NoUpdateError
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, to_record
from fedcomp.flower.local_grid import Fault
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, model, training

MODEL: Arrays = {
    "body.weight": np.zeros((4, 3), np.float32),
    "bn.weight": np.ones(3, np.float32),
    "bn.running_mean": np.zeros(3, np.float32),
}


def _run(
    change: Callable[[Arrays], Any], first: Arrays | None = None, *, rounds: int = 3, weight: float = 1, **settings: Any
) -> CompressedStrategy:
    """Return a run of three nodes that train to `change` of the model."""
    inner = FedAvg(fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.dense(), **settings)
    grid = LocalGrid(training(lambda given, *_: change(given), weight), 3)
    strategy.start(grid, to_record(MODEL if first is None else first), num_rounds=rounds)
    return strategy


def _more(given: Arrays) -> Arrays:
    return {name: array + array.dtype.type(1) for name, array in given.items()}


def _without_norms(given: Arrays) -> Arrays:
    return {name: array for name, array in _more(given).items() if not name.startswith("bn")}


def test_a_reply_without_its_norms_ends_in_a_sentence_that_names_the_setting_and_that_works(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    """FedBN, as Flower's guide has it."""
    with pytest.raises(
        NoUpdateError, match=r"in 3 rounds; in round 1, node \d: .*local=\['bn.weight', 'bn.running_mean'\]"
    ):
        _run(_without_norms)
    (line, *_) = [each.getMessage() for each in flower_log.records if "all replies are errors" in each.getMessage()]
    assert "local=['bn.weight'" in line
    assert "add it" not in line, "the mod is there"
    strategy = _run(_without_norms, local=["bn.weight", "bn.running_mean"])
    np.testing.assert_array_equal(strategy.arrays["body.weight"].numpy(), MODEL["body.weight"] + 3)


CASES: dict[str, tuple[Callable[[Arrays], Any], str]] = {
    "an app that raises": (lambda given: given["nothing"], "KeyError"),
    "a shape that is known only after the first fit": (
        lambda given: given | {"body.weight": np.zeros((5, 3), np.float32)},
        r"'body.weight' has shape \(5, 3\); the model's has \(4, 3\), which the first model fixed",
    ),
    "0-d for (1,)": (lambda given: given | {"bn.weight": np.float32(1)}, r"shape \(\); the model's has \(3,\)"),
    "a tensor more": (lambda given: given | {"aux": np.ones(3)}, r"unexpected \['aux'\]"),
    "NaN": (lambda given: given | {"bn.weight": np.full(3, np.nan, np.float32)}, "'bn.weight' holds NaN"),
    "no array": (lambda given: {}, r"missing \['body.weight'"),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_of_all_nodes_are_raised_at_the_end(name: str) -> None:
    change, text = CASES[name]
    with pytest.raises(NoUpdateError, match=text):
        _run(change)


def test_weights_of_0_are_raised_at_the_end() -> None:
    with pytest.raises(NoUpdateError, match="its weight is 0"):
        _run(_more, weight=0)


def test_silence_is_raised_at_the_end_unless_the_model_was_trained_before() -> None:
    def grid() -> LocalGrid:
        return LocalGrid(training(lambda given, *_: _more(given)), 2)

    silent, strategy = grid(), CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    for node in silent.contexts:
        silent.order(node, *[Fault.LOSE_REPLY] * 2)
    with pytest.raises(NoUpdateError, match="in 2 rounds; no node has answered"):
        strategy.start(silent, to_record(MODEL), num_rounds=2)
    strategy.start(silent, to_record(MODEL), num_rounds=1)
    for node in silent.contexts:
        silent.order(node, Fault.LOSE_REPLY)
    strategy.start(silent, to_record(MODEL), num_rounds=1)
    assert strategy.version == 1


@pytest.mark.parametrize("first", [{}, {"coef": np.zeros(0, np.float32)}, {"coef": np.zeros((0, 3))}])
def test_a_first_model_without_entries_is_refused_by_its_reason(first: Arrays) -> None:
    reason = r"'coef' has shape \(0.*\), and shapes are those of the first model" if first else "no tensors at all"
    with pytest.raises(ValueError, match=reason):
        _run(_more, first)


def test_a_run_that_trains_nobody_ends_as_usual() -> None:
    strategy = CompressedStrategy(FedAvg(fraction_train=0.0, fraction_evaluate=0.0))
    strategy.start(LocalGrid(training(lambda given, *_: given), 2), to_record(MODEL), num_rounds=2)
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(training(lambda given, *_: given), 2), to_record(MODEL), num_rounds=0)


def test_a_strategy_that_makes_no_model_on_purpose_ends_as_usual() -> None:
    class Counting(FedAvg):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            return None, MetricRecord({"count": len(list(replies))})

    strategy = CompressedStrategy(Counting(fraction_evaluate=0.0))
    result = strategy.start(LocalGrid(training(lambda given, *_: given), 2), to_record(MODEL), num_rounds=2)
    assert result.train_metrics_clientapp[2]["count"] == 2


def test_a_model_of_integers_that_nobody_trained_is_raised_too() -> None:
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        raise RuntimeError("no memory")

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    with pytest.raises(NoUpdateError, match="no memory"):
        strategy.start(LocalGrid(client_app, 2), ArrayRecord({"trees": Array(np.arange(3))}), num_rounds=2)


class Sums(FedAvg):
    """A strategy that takes for granted that there are replies."""

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        models = [arrays_of(cast(ArrayRecord, reply.content["arrays"])) for reply in replies if reply.has_content()]
        return to_record({name: sum(model[name] for model in models) / len(models) for name in MODEL}), None


def test_the_reason_of_the_nodes_is_raised_and_not_what_a_strategy_says_of_an_empty_list() -> None:
    strategy = CompressedStrategy(Sums(fraction_evaluate=0.0))
    grid = LocalGrid(training(lambda given, *_: {"sums": np.ones(3), "counts": np.ones(3)}), 3)
    with pytest.raises(NoUpdateError, match=r"in 2 rounds; in round 1, .*'counts'.* in a record of its own"):
        strategy.start(grid, to_record(MODEL), num_rounds=2)
    assert strategy.failed_rounds == (1, 2)


def test_a_strategy_that_fails_on_updates_is_raised_even_if_the_last_round_had_none() -> None:
    class Fails(FedAvg):
        def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
            raise RuntimeError(f"disk full in round {server_round}")

    grid = LocalGrid(training(lambda given, _, number: _more(given) if number == 1 else {}), 2)
    with pytest.raises(RuntimeError, match="disk full in round 1"):
        CompressedStrategy(Fails(fraction_evaluate=0.0)).start(grid, to_record(MODEL), num_rounds=2)


class Changing(FedAvg):
    """FedAvg whose result is changed in some rounds."""

    def __init__(self, change: Callable[[Arrays], Any], rounds: tuple[int, ...]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.change, self.rounds = change, rounds

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None or server_round not in self.rounds:
            return arrays, metrics
        changed = self.change(arrays_of(arrays))
        return ArrayRecord(changed) if isinstance(changed, list) else to_record(changed), metrics


OTHER_MODELS: dict[str, tuple[Callable[[Arrays], Any], str]] = {
    "a part": (lambda arrays: {"bn.weight": arrays["bn.weight"]}, r"missing \['body.weight', 'bn.running_mean'\]"),
    "a tensor more": (lambda arrays: arrays | {"new": np.ones(2)}, r"unexpected \['new'\]"),
    "a wider layer": (lambda arrays: arrays | {"bn.weight": np.ones(9)}, r"shape \(9,\); the model's has \(3,\)"),
    "other names": (lambda arrays: dict(zip("abc", arrays.values(), strict=True)), r"unexpected \['a', 'b', 'c'\]"),
    "a list of other order": (lambda arrays: [*arrays.values()][::-1], r"unexpected \['0', '1', '2'\]"),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_another_model_of_a_strategy_costs_the_round_and_is_raised_if_it_is_all_that_comes(
    name: str, flower_log: pytest.LogCaptureFixture
) -> None:
    change, text = OTHER_MODELS[name]
    grid = LocalGrid(training(lambda given, *_: _more(given)), 3)
    strategy = CompressedStrategy(Changing(change, (2,)), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    strategy.start(grid, to_record(MODEL), num_rounds=3)
    assert (strategy.failed_rounds, strategy.version) == ((2,), 2)
    assert "training failed in round 2" in flower_log.text
    with pytest.raises(ValueError, match=f"Changing.aggregate_train returned another model: .*{text}") as caught:
        CompressedStrategy(Changing(change, (1, 2, 3))).start(
            LocalGrid(training(lambda given, *_: _more(given)), 3), to_record(MODEL), num_rounds=3
        )
    assert caught.value.__notes__ == ["fedcomp: no round has had a result; 3 failed, the last one is round 3"]


def test_a_strategy_may_return_a_list_of_arrays() -> None:
    grid = LocalGrid(training(lambda given, *_: _more(given)), 3)
    inner = Changing(lambda arrays: list(arrays.values()), (1, 2))
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.dense())
    strategy.start(grid, to_record(MODEL), num_rounds=2)
    for name, array in arrays_of(strategy.arrays).items():
        np.testing.assert_array_equal(array, MODEL[name] + 2)


def test_one_node_that_can_train_is_enough() -> None:
    client_app = ClientApp(mods=[CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_id > 1:
            raise RuntimeError("no memory")
        content = RecordDict({"arrays": cast(ArrayRecord, message.content["arrays"])})
        content["metrics"] = MetricRecord({"num-examples": 1})
        return Message(content, reply_to=message)

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(client_app, 3), model(), num_rounds=2)
    assert strategy.version == 2
