"""Local training against steps computed by hand and against torch's own optimizer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from clients.local import LocalPlan, batches, train
from fedcomp.training import Plan, PlugIn, State, Step, batch_augmentation, fedprox

ONE_STEP = LocalPlan(epochs=1, steps=0, batch_size=4, learning_rate=0.5, momentum=0.0, weight_decay=0.0)


def plan(**changes: Any) -> LocalPlan:
    """`ONE_STEP` with other settings."""
    return replace(ONE_STEP, **changes)


def linear(weight: list[list[float]]) -> nn.Linear:
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight))
    return model


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def samples(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = rng(seed)
    x = torch.tensor(random.normal(size=(count, 2)), dtype=torch.float32)
    return x, torch.tensor(random.integers(0, 2, count))


def test_one_step_is_the_one_computed_by_hand() -> None:
    # Zero weights: both classes have probability 1/2, so the gradient of class c is (1/2 - [y = c]) x.
    model = linear([[0.0, 0.0], [0.0, 0.0]])
    loss = train(model, torch.tensor([[1.0, 2.0]]), torch.tensor([0]), ONE_STEP, rng()).loss
    assert loss == pytest.approx(np.log(2))
    assert torch.equal(model.weight, torch.tensor([[0.25, 0.5], [-0.25, -0.5]]))


def test_the_gradient_is_the_mean_over_the_batch() -> None:
    model = linear([[0.0, 0.0], [0.0, 0.0]])
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1])
    train(model, x, y, ONE_STEP, rng())
    # ((-1/2)(1, 2) + (1/2)(3, 4)) / 2 = (1/2, 1/2) for class 0, its negative for class 1; times -0.5
    assert torch.allclose(model.weight, torch.tensor([[-0.25, -0.25], [0.25, 0.25]]))


def test_weight_decay_pulls_to_zero_and_the_proximal_term_to_the_initial_weights() -> None:
    x, y = torch.zeros(1, 2), torch.tensor([0])  # no gradient of its own
    decayed, held = linear([[1.0, 2.0], [3.0, 4.0]]), linear([[1.0, 2.0], [3.0, 4.0]])
    train(decayed, x, y, plan(weight_decay=0.5), rng())
    train(held, x, y, plan(training=fedprox(0.5), steps=3), rng())
    assert torch.allclose(decayed.weight, 0.75 * torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert torch.equal(held.weight, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def test_the_proximal_term_acts_from_the_second_step_on() -> None:
    x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
    free, one, held = (linear([[0.0, 0.0], [0.0, 0.0]]) for _ in range(3))
    train(one, x, y, plan(steps=1), rng())
    train(free, x, y, plan(steps=2), rng())
    train(held, x, y, plan(steps=2, training=fedprox(0.2)), rng())
    # the pull is mu (w1 - w0) = mu w1, times the learning rate
    assert torch.allclose(held.weight, free.weight - 0.5 * 0.2 * one.weight)


def test_momentum_goes_on_from_the_state_and_starts_from_zero_without_one() -> None:
    """Two rounds of one step with the state of the first are one round of two steps, to the bit."""
    x, y = samples(4)
    chosen = plan(momentum=0.9, weight_decay=0.01, steps=1, batch_size=4)
    weights = {}
    for name in ("one round", "two rounds", "two without state"):
        model = linear([[0.1, 0.2], [0.3, 0.4]])
        if name == "one round":
            train(model, x, y, replace(chosen, steps=2), rng(1))
        else:
            random = rng(1)
            state = train(model, x, y, chosen, random).state
            before = state["momentum"]["weight"].clone()
            train(model, x, y, chosen, random, state if name == "two rounds" else None)
            assert torch.equal(state["momentum"]["weight"], before), "the state of a round is a value"
        weights[name] = model.weight.detach().clone()
    assert torch.equal(weights["one round"], weights["two rounds"])
    assert not torch.equal(weights["one round"], weights["two without state"])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_adam_is_that_of_torch_and_goes_on_from_its_state(momentum: float) -> None:
    """Three rounds of two steps, each from the state of the last, against one optimizer of torch over six."""
    x, y = samples(4)
    chosen = plan(optimizer="adam", momentum=momentum, weight_decay=0.01, steps=2, learning_rate=0.1)
    model, other = linear([[0.1, 0.2], [0.3, 0.4]]), linear([[0.1, 0.2], [0.3, 0.4]])
    state: State = {}
    for _ in range(3):
        state = train(model, x, y, chosen, rng(), state).state
    optimizer = torch.optim.Adam(other.parameters(), lr=0.1, betas=(momentum, 0.999), weight_decay=0.01)
    for _ in range(6):
        optimizer.zero_grad()
        functional.cross_entropy(other(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.testing.assert_close(model.weight, other.weight)
    assert {name: tensor.shape for name, tensor in state["adam"].items()} == {
        "steps": (),
        "weight:first": (2, 2),
        "weight:second": (2, 2),
    }
    assert state["adam"]["steps"] == 6
    again = linear([[0.1, 0.2], [0.3, 0.4]])
    train(again, x, y, chosen, rng())
    before = {name: tensor.clone() for name, tensor in state["adam"].items()}
    train(model, x, y, chosen, rng(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in state["adam"].items()), "the state is a value"


def test_adam_starts_anew_where_a_moment_is_missing_or_of_another_shape() -> None:
    x, y = samples(4)
    chosen = plan(optimizer="adam", momentum=0.9)
    fresh = linear([[0.1, 0.2], [0.3, 0.4]])
    train(fresh, x, y, chosen, rng())
    whole = {"steps": torch.tensor(5.0), "weight:first": torch.ones(2, 2), "weight:second": torch.ones(2, 2)}
    for wrong in ({"weight:second": torch.ones(3)}, {"weight:first": torch.ones(3)}):
        model = linear([[0.1, 0.2], [0.3, 0.4]])
        train(model, x, y, chosen, rng(), {"adam": whole | wrong})
        assert torch.equal(model.weight, fresh.weight)
    model = linear([[0.1, 0.2], [0.3, 0.4]])
    train(model, x, y, chosen, rng(), {"adam": whole})
    assert not torch.equal(model.weight, fresh.weight)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown optimizer 'lamb'; there are: sgd, adam"):
        train(linear([[0.1, 0.2], [0.3, 0.4]]), *samples(4), plan(optimizer="lamb"), rng())


def test_the_momentum_of_another_model_is_not_used() -> None:
    x, y = samples(4)
    fresh, given = linear([[0.1, 0.2], [0.3, 0.4]]), linear([[0.1, 0.2], [0.3, 0.4]])
    chosen = plan(momentum=0.9)
    other = {"momentum": {"weight": torch.ones(3, 2), "bias": torch.ones(2)}}
    losses = [train(fresh, x, y, chosen, rng(1)), train(given, x, y, chosen, rng(1), other)]
    assert losses[0].loss == losses[1].loss
    assert torch.equal(fresh.weight, given.weight)


def test_without_momentum_there_is_no_state() -> None:
    assert train(linear([[0.1, 0.2], [0.3, 0.4]]), *samples(4), ONE_STEP, rng()).state == {}


def test_plug_ins_see_each_batch_and_their_state_comes_back() -> None:
    class Counted(Step):
        def __init__(self, kept: Mapping[str, Tensor]) -> None:
            self.batches = int(kept["batches"]) if kept else 0

        def stepped(self) -> None:
            self.batches += 1

        def end(self) -> dict[str, Tensor]:
            return {"batches": torch.tensor(self.batches)}

    counted = Plan((PlugIn("counted", (), lambda model, kept, generator: Counted(kept)),))
    state: State = {}
    model, chosen = linear([[0.1, 0.2], [0.3, 0.4]]), plan(training=counted, momentum=0.5, epochs=2)
    for total in (6, 12):  # batches of 4, 4 and 2, twice
        state = train(model, *samples(10), chosen, rng(), state).state
        assert int(state["counted()"]["batches"]) == total
        assert set(state) == {"counted()", "momentum"}


def test_a_weight_that_the_loss_does_not_depend_on_has_a_gradient_of_zero() -> None:
    """So weight decay acts on it, and the server gets what it expects."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    model.register_parameter("unused", nn.Parameter(torch.tensor([4.0])))
    train(model, *samples(4), plan(weight_decay=0.5), rng())
    assert model.get_parameter("unused").tolist() == [3.0], "4 - 0.5 x 0.5 x 4"


def test_the_seed_decides_what_plug_ins_draw() -> None:
    x, y = torch.arange(96.0).reshape(6, 1, 4, 4) / 96, torch.tensor([0, 1, 0, 1, 1, 0])
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
        losses.append(train(model, x, y, plan(training=batch_augmentation(2)), rng(), seed=seed).loss)
    assert losses[0] == losses[1] != losses[2]


def test_no_gradients_stay_in_the_model() -> None:
    model = linear([[0.1, 0.2], [0.3, 0.4]])
    train(model, *samples(4), ONE_STEP, rng())
    assert model.weight.grad is None


def test_plug_ins_end_after_an_error() -> None:
    ended: list[bool] = []

    class Failing(Step):
        def stepped(self) -> None:
            raise ArithmeticError

        def end(self) -> dict[str, Tensor]:
            ended.append(True)
            return {}

    failing = Plan((PlugIn("failing", (), lambda model, kept, generator: Failing()),))
    with pytest.raises(ArithmeticError):
        train(linear([[0.1, 0.2], [0.3, 0.4]]), *samples(4), plan(training=failing), rng())
    assert ended == [True]


def test_momentum_starts_from_zero_in_each_round() -> None:
    x, y = samples(4)
    twice, once = linear([[0.1, 0.2], [0.3, 0.4]]), linear([[0.1, 0.2], [0.3, 0.4]])
    with_momentum = plan(momentum=0.9, steps=1)
    train(twice, x, y, with_momentum, rng(1))
    start = twice.weight.detach().clone()
    train(twice, x, y, with_momentum, rng(2))
    with torch.no_grad():
        once.weight.copy_(start)
    train(once, x, y, with_momentum, rng(2))
    assert torch.equal(twice.weight, once.weight)


@pytest.mark.parametrize(("epochs", "batch_size", "count"), [(1, 1, 7), (3, 4, 10), (2, 50, 10), (5, 10, 1)])
def test_each_epoch_has_every_sample_once(epochs: int, batch_size: int, count: int) -> None:
    drawn = np.concatenate(list(batches(count, plan(epochs=epochs, batch_size=batch_size), rng())))
    for epoch in np.split(drawn, epochs):
        assert sorted(epoch.tolist()) == list(range(count))


def test_steps_replace_epochs_and_continue_into_the_next_epoch() -> None:
    drawn = list(batches(10, plan(steps=5, epochs=99), rng()))
    assert [len(batch) for batch in drawn] == [4, 4, 2, 4, 4]
    assert sorted(np.concatenate(drawn[:3])) == list(range(10))
    assert len(set(np.concatenate(drawn[3:]).tolist())) == 8
    epochs, steps = (list(batches(10, chosen, rng())) for chosen in (plan(epochs=2), plan(steps=6)))
    assert all(np.array_equal(a, b) for a, b in zip(epochs, steps, strict=True))


def test_the_seed_decides_the_batches() -> None:
    first, again, other = (list(batches(100, ONE_STEP, np.random.default_rng([0, r, 3]))) for r in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_node_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="^0 samples"):
        train(linear([[0.0, 0.0], [0.0, 0.0]]), torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), ONE_STEP, rng())


@pytest.mark.parametrize("changes", [{}, {"momentum": 0.9, "weight_decay": 0.01}])
def test_a_round_equals_torchs_own_optimizer_to_the_bit(changes: dict[str, float]) -> None:
    chosen, (x, y) = plan(steps=7, **changes), samples(10)
    model, other = linear([[0.1, 0.2], [0.3, -0.4]]), linear([[0.1, 0.2], [0.3, -0.4]])
    train(model, x, y, chosen, rng(3))
    sgd = torch.optim.SGD(other.parameters(), lr=0.5, momentum=chosen.momentum, weight_decay=chosen.weight_decay)
    for batch in batches(10, chosen, rng(3)):
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(other(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        sgd.step()
    assert torch.equal(model.weight, other.weight)


def test_a_model_that_was_evaluated_trains_in_training_mode() -> None:
    class Mode(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch names it
            assert self.training
            return super().forward(input)

    train(Mode(2, 2).eval(), *samples(4), ONE_STEP, rng())
