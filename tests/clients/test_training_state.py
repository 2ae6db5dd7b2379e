"""What a node keeps of its training: momentum under each setting, and the state of plug-ins that change."""

import logging
from dataclasses import replace

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from clients import training_state
from clients.local import LocalPlan
from fedcomp.training import Plan, PlugIn, Step

MOMENTA = {"layer.weight": torch.tensor([[8.0, -4.0]]), "layer.bias": torch.tensor([1.0])}


def plan(*names: str, momentum: float = 0.5) -> LocalPlan:
    training = Plan(tuple(PlugIn(name, (("size", 2),), lambda model, kept, generator: Step()) for name in names))
    return LocalPlan(1, 0, 10, 0.1, momentum, 0.0, training)


def equal(state: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return state.keys() == other.keys() and all(torch.equal(state[name], other[name]) for name in state)


@pytest.mark.parametrize(
    ("setting", "server_round", "factor"),
    [("keep", 4, 1.0), ("keep", 9, 1.0), ("decay", 4, 1.0), ("decay", 5, 0.5), ("decay", 7, 0.125)],
)
def test_momentum_comes_back_as_the_setting_says(setting: str, server_round: int, factor: float) -> None:
    """The node trained in round 3; under decay, it loses half for each round that it has missed."""
    records = RecordDict({"others": ConfigRecord({"a": 1})})
    training_state.save(records, {"momentum": MOMENTA}, setting, 3)
    state = training_state.load(records, plan(), setting, server_round)
    assert equal(dict(state["momentum"]), {name: factor * momentum for name, momentum in MOMENTA.items()})
    assert records["others"] == ConfigRecord({"a": 1})


def test_the_moments_of_adam_come_back_and_decay_each_by_its_beta() -> None:
    records = RecordDict()
    kept = {"steps": torch.tensor(7.0), "w:first": torch.tensor([8.0]), "w:second": torch.tensor([1.0])}
    training_state.save(records, {"adam": kept}, "keep", 3)
    chosen = replace(plan(), optimizer="adam")
    assert equal(dict(training_state.load(records, chosen, "keep", 9)["adam"]), kept)
    decayed = training_state.load(records, chosen, "decay", 6)["adam"]
    assert {name: tensor.item() for name, tensor in decayed.items()} == pytest.approx(
        {"steps": 7, "w:first": 2, "w:second": 0.999**2}
    )
    assert training_state.load(records, plan(), "keep", 4) == {}, "SGD does not use them"
    assert training_state.load(records, chosen, "reset", 4) == {}
    training_state.save(records, {"adam": kept}, "reset", 5)
    assert not records


@pytest.mark.parametrize("setting", ["keep", "decay"])
def test_the_momentum_of_a_module_with_a_slash_in_its_name_comes_back(setting: str) -> None:
    """torch allows any name without a dot."""
    records = RecordDict()
    momenta = {"layers.a/b.weight": torch.tensor([2.0]), "/": torch.tensor([4.0])}
    training_state.save(records, {"momentum": momenta}, setting, 3)
    assert equal(dict(training_state.load(records, plan(), setting, 4)["momentum"]), momenta)


def test_under_reset_no_momentum_is_kept() -> None:
    records = RecordDict()
    training_state.save(records, {"momentum": MOMENTA}, "reset", 3)
    assert not records
    training_state.save(records, {"momentum": MOMENTA}, "keep", 3)
    assert training_state.load(records, plan(), "reset", 4) == {}
    training_state.save(records, {"momentum": MOMENTA}, "reset", 5)
    assert not records, "an older one is removed"


def test_a_node_that_has_kept_nothing_begins_with_nothing() -> None:
    assert training_state.load(RecordDict(), plan("a"), "decay", 4) == {}


def test_the_state_of_plug_ins_comes_back_and_that_of_others_is_left_out_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = RecordDict()
    tensors = {"mask": torch.tensor([True, False]), "scale": torch.tensor(4.0)}
    training_state.save(records, {"a(size=2)": tensors, "b(size=2)": {"mask": torch.ones(1)}}, "reset", 3)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level("INFO", logger="flwr"):
        assert equal(dict(training_state.load(records, plan("b", "a"), "reset", 4)["a(size=2)"]), tensors)
        assert not caplog.messages
        state = training_state.load(records, plan("a", "c"), "reset", 4)
    assert state.keys() == {"a(size=2)"}
    assert equal(dict(state["a(size=2)"]), tensors)
    (line,) = caplog.messages
    assert "b(size=2)" in line
    assert "a(size=2)" not in line


def test_the_state_that_is_left_out_is_named_in_alphabetical_order(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = RecordDict()
    training_state.save(records, {f"{name}(size=2)": {"mask": torch.ones(1)} for name in "edcba"}, "reset", 3)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level("INFO", logger="flwr"):
        assert training_state.load(records, plan(), "reset", 4) == {}
    assert " and ".join(f"{name}(size=2)" for name in "abcde") in caplog.messages[0]
