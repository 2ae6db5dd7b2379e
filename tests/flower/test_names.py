"""Names of a reply that differ from the model's: matched only where nothing can be swapped."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, to_record
from fedcomp.flower.names import match_names
from fedcomp.wire import layout_of
from tests.flower.reply_names import MATCHED, REFUSED, NameCase
from tests.flower.toy import Arrays, arrays_of, training


def _matched(
    names: Sequence[str],
    reply: Sequence[str],
    local: Sequence[str] = (),
    tied: Sequence[Sequence[str]] = (),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, str]:
    """Return which tensor of a reply is taken for which one of a model; they are of one shape unless `shapes` names others."""
    shapes = shapes or {}
    layout = layout_of({name: np.zeros(shapes.get(name, (2,)), np.float32) for name in names}, local, tied)
    sent = {name: Array(np.full(shapes.get(name, (2,)), index, np.float32)) for index, name in enumerate(reply)}
    match = match_names(sent, layout)
    assert bool(match.how) == (not set(reply) <= set(names))
    layout.check(match.record)
    return {name: reply[int(array.numpy().flat[0])] for name, array in match.record.items()}


@pytest.mark.parametrize("case", MATCHED, ids=lambda case: case.title)
def test_names_are_matched_by_name(case: NameCase) -> None:
    assert _matched(case.model, case.reply, case.local, case.tied) == dict(case.expected)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.title)
def test_anything_else_is_refused_with_both_lists(case: NameCase) -> None:
    with pytest.raises(ValueError, match=r"missing \[.*\], unexpected \[.*\]") as caught:
        _matched(case.model, case.reply, case.local, case.tied)
    text = str(caught.value)
    for name in {*case.reply} ^ {*case.model} - {*case.local}:
        assert repr(name) in text
    assert case.says in text


CHANGES: dict[str, Callable[[str], str]] = {
    "the same": lambda name: name,
    "a prefix": lambda name: "_orig_mod.module." + name,
    "a suffix": lambda name: name + ":0",
    "another separator": lambda name: name.replace(".", "/"),
}


@pytest.mark.one_flower
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_random_names_are_matched_in_both_directions_and_any_order(change: Callable[[str], str]) -> None:
    rng = random.Random(1)
    for _ in range(100):
        parts = ["".join(rng.choices("ab_0", k=rng.randint(1, 2))) for _ in range(6)]
        names = list({".".join(rng.choices(parts, k=rng.randint(1, 3))) for _ in range(rng.randint(1, 8))})
        changed = [change(name) for name in names]
        pairs = dict(zip(names, changed, strict=True))
        for model, reply, expected in (
            (names, changed, pairs),
            (changed, names, {other: name for name, other in pairs.items()}),
        ):
            shuffled = rng.sample(reply, len(reply))
            try:
                assert _matched(model, shuffled) == expected
            except ValueError as error:  # never another result
                assert "several ways" in str(error)  # noqa: PT017


def test_where_names_match_in_several_ways_shapes_decide_or_it_is_refused() -> None:
    names, reply = ["w.1", "w.0"], ["0", "1"]  # by the prefix 'w.', or by position
    with pytest.raises(ValueError, match=r"prefix 'w.' of the model's names, or by position"):
        _matched(names, reply)
    shapes = {"w.1": (3,), "w.0": (4,), "0": (3,), "1": (4,)}
    assert _matched(names, reply, shapes=shapes) == {"w.1": "0", "w.0": "1"}
    shapes |= {"0": (4,), "1": (3,)}
    assert _matched(names, reply, shapes=shapes) == {"w.1": "1", "w.0": "0"}


BLOCKS = {f"h.{index}.weight": np.full((4, 4), index, np.float32) for index in range(12)}


@pytest.mark.parametrize(
    ("counter", "fits"),
    [(np.array(2.5), True), (np.array(2), True), (np.array([2.5]), False), (np.array([2]), False)],
    ids=["its mean", "itself", "a mean of another shape", "another shape"],
)
def test_a_list_may_hold_the_mean_of_an_integer_in_its_place(counter: NDArray[Any], fits: bool) -> None:
    layout = layout_of({"w": np.zeros(2, np.float32), "steps": np.array(0)})
    sent = {"0": Array(np.ones(2, np.float32)), "1": Array(counter)}
    if fits:
        assert match_names(sent, layout).record["steps"].numpy() == counter
    else:
        with pytest.raises(ValueError, match="tensors differ from the model's"):
            match_names(sent, layout)


def _trained(change: Callable[[Arrays], Arrays], model: Arrays, rounds: int = 3) -> Arrays:
    def train(given: Arrays, context: Context, server_round: int) -> Arrays:
        return change({name: array + np.float32(1) for name, array in given.items()})

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    strategy.start(LocalGrid(training(train), 3), to_record(model), num_rounds=rounds)
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    return arrays_of(strategy.arrays)


def test_equal_layers_under_a_prefix_and_in_another_order_are_not_swapped(flower_log: pytest.LogCaptureFixture) -> None:
    """Files sorted by name hold block 10 before block 2."""
    result = _trained(lambda arrays: {"model." + name: arrays[name] for name in sorted(arrays)}, BLOCKS)
    for name, array in BLOCKS.items():
        np.testing.assert_array_equal(result[name], array + 3)
    lines = [each.getMessage() for each in flower_log.records if "other names" in each.getMessage()]
    assert len(lines) == 1
    assert "without the prefix 'model.' of the reply's names" in lines[0]


def test_a_model_under_a_prefix_is_trained_by_apps_without_it() -> None:
    wrapped = {"module." + name: array for name, array in BLOCKS.items()}
    result = _trained(lambda arrays: {name.removeprefix("module."): arrays[name] for name in sorted(arrays)}, wrapped)
    for name, array in wrapped.items():
        np.testing.assert_array_equal(result[name], array + 3)


def test_names_that_came_are_nothing_to_log(flower_log: pytest.LogCaptureFixture) -> None:
    _trained(lambda arrays: dict(reversed(arrays.items())), BLOCKS)
    assert "other names" not in flower_log.text


def test_local_tensors_come_back_under_the_names_of_the_model() -> None:
    seen: list[float] = []

    def train(given: Arrays, context: Context, server_round: int) -> Arrays:
        if "head" in given:
            seen.append(float(given["head"][0]))
        arrays = {"body": given["body"] + 1, "head": np.full(3, server_round, np.float32)}
        return {"module." + name: array for name, array in sorted(arrays.items(), reverse=True)}

    model = ArrayRecord({name: Array(np.zeros(3, np.float32)) for name in ("body", "head")})
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), local=["head"])
    strategy.start(LocalGrid(training(train), 2), model, num_rounds=3)
    assert seen == [1, 1, 2, 2]
