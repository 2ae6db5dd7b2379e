"""Gradient accumulation: several batches in one step of the optimizer."""

import logging
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.training import LocalRound, Plan, Step, parse
from fedcomp.training.mixed_precision import MixedPrecision
from fedcomp.training.plan import PlugIn
from fedcomp.training.step import Tensors


def half(model: nn.Module, kept: Tensors, _generator: torch.Generator) -> Step:
    """Begin with float16, which torch's autocast computes on the CPU too, slowly."""
    return MixedPrecision(torch.float16, model, kept)


FLOAT16 = Plan((PlugIn("half", (), half, rank=1),))


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 5))


def samples(count: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 40, generator=generator), torch.randint(5, (count,), generator=generator)


def weights_after(plan: Plan, parts: int, steps: int = 5) -> dict[str, Tensor]:
    model = plan.prepare(mlp(), 0)
    x, y = samples()
    training = plan.begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        for part in range(parts):
            training.step(
                optimizer,
                x[part::parts],
                y[part::parts],
                functional.cross_entropy,
                share=1 / parts,
                last=part == parts - 1,
            )
    training.end()
    return {name: weight.detach() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        parse("fedprox(10)"),
        parse("admm(rho=10, interval=2)"),
        parse("quantized('ternary')"),
        parse("rigl(0.3)"),
        parse("zerofl(0.5, upload='weights-diff')"),
    ],
    ids=str,
)
def test_parts_of_a_batch_make_the_step_of_the_batch(plan: Plan) -> None:
    """Penalties count once, and so does each step.  ZeroFL chooses the largest inputs of each batch, so it is only near."""
    whole, parts = weights_after(plan, 1), weights_after(plan, 4)
    near = 0.05 if "zerofl" in str(plan) else 1e-5
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=near, atol=near)
    assert any(not torch.equal(weight, each) for weight, each in zip(whole.values(), mlp().parameters(), strict=True))


@pytest.mark.parametrize("plan", [FLOAT16, parse("mixed_precision()")], ids=["float16", "bfloat16"])
def test_in_16_bits_the_gradient_is_the_sum_of_those_of_the_batches(plan: Plan) -> None:
    model, (x, y) = mlp(), samples(16)
    weight = model.get_parameter("0.weight")
    right = torch.zeros_like(weight)
    for at in (slice(8), slice(8, 16)):
        right += torch.autograd.grad(functional.cross_entropy(model(x[at]), y[at]), weight)[0]
    training = plan.begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    training.step(optimizer, x[:8], y[:8], functional.cross_entropy, last=False)
    training.step(optimizer, x[8:], y[8:], functional.cross_entropy)
    found = cast("Tensor", model[0].weight.grad)
    assert float((found - right).norm() / right.norm()) < (0.1 if "half" not in str(plan) else 0.002)


def test_a_batch_that_overflows_undoes_the_whole_step() -> None:
    """The first of two batches: the buffers that both have changed are those before the step, and the scale is halved once."""
    model = nn.Sequential(nn.Linear(40, 20), nn.BatchNorm1d(20), nn.Linear(20, 5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, y = samples(16)
    training = FLOAT16.begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.step(optimizer, x, y, lambda outputs, y: 1e6 * functional.cross_entropy(outputs.float(), y), last=False)
    training.step(optimizer, x, y, functional.cross_entropy)
    assert float(training.end()["half()"]["scale"]) == 2.0**15
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_sparse_gradients_are_unscaled_too() -> None:
    model = nn.Sequential(nn.Embedding(6, 4, sparse=True), nn.Linear(4, 2))
    exact = torch.autograd.grad(model(torch.tensor([1, 1, 3])).square().mean(), model.get_parameter("0.weight"))[
        0
    ].to_dense()
    training = FLOAT16.begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    training.step(
        optimizer, torch.tensor([1, 1, 3]), torch.zeros(3), lambda outputs, _: outputs.float().square().mean()
    )
    found = cast("Tensor", model[0].weight.grad)
    assert found.is_sparse
    torch.testing.assert_close(found.to_dense(), exact, rtol=0.01, atol=1e-3)


class EverySecond:
    """An optimizer that accumulates by itself."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.calls = optimizer, 0

    def zero_grad(self) -> None:
        if self.calls % 2 == 0:
            self.optimizer.zero_grad()

    def step(self) -> None:
        self.calls += 1
        if self.calls % 2 == 0:
            self.optimizer.step()


def test_an_optimizer_that_keeps_gradients_is_refused() -> None:
    """Plug-ins would take them for those of one batch, and divide them by the loss scale twice."""
    model, (x, y) = mlp(), samples()
    training, optimizer = LocalRound(model, {}), EverySecond(torch.optim.SGD(model.parameters(), lr=0.1))
    training.step(optimizer, x, y, functional.cross_entropy)
    with pytest.raises(ValueError, match=r"^zero_grad\(\) of EverySecond keeps all gradients [^\n]*last=False[^\n]*$"):
        training.step(optimizer, x, y, functional.cross_entropy)


class ByZeros(torch.optim.SGD):
    """Makes gradients zero in place of dropping them."""

    def zero_grad(self, set_to_none: bool = False) -> None:
        super().zero_grad(set_to_none)


def test_gradients_that_become_zero_and_those_of_weights_that_are_not_trained_are_no_hindrance() -> None:
    (x, y), model, other = samples(), mlp(), mlp()
    for trained, optimizer in (
        (model, ByZeros(model.parameters(), lr=0.1)),
        (other, torch.optim.SGD(other[4].parameters())),
    ):
        training = LocalRound(trained, {})
        for _ in range(3):
            training.step(optimizer, x, y, functional.cross_entropy)


def test_after_an_error_the_next_batch_begins_a_step() -> None:
    model, (x, y) = mlp(), samples()
    training, optimizer = LocalRound(model, {}), torch.optim.SGD(model.parameters(), lr=0.0)

    def fails(_outputs: Tensor, _y: Tensor) -> Tensor:
        raise ArithmeticError

    training.step(optimizer, x, y, functional.cross_entropy)
    alone = cast("Tensor", model[0].weight.grad).clone()
    training.step(optimizer, x, y, functional.cross_entropy, last=False)
    with pytest.raises(ArithmeticError):
        training.step(optimizer, x, y, fails)
    training.step(optimizer, x, y, functional.cross_entropy)
    assert torch.equal(cast("Tensor", model[0].weight.grad), alone)


def test_a_round_that_ends_within_a_step_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model, (x, y) = mlp(), samples()
    training, optimizer = LocalRound(model, {}), torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "fedcomp"):
        training.step(optimizer, x, y, functional.cross_entropy)
        training.end()
        assert not caplog.messages
        training.step(optimizer, x, y, functional.cross_entropy, last=False)
        training.end()
        training.end()
    assert ["no batch of it was the last" in line for line in caplog.messages] == [True]


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_is_above_zero_to_one(share: float) -> None:
    model, (x, y) = mlp(), samples()
    with pytest.raises(ValueError, match="share is"):
        LocalRound(model, {}).step(torch.optim.SGD(model.parameters()), x, y, functional.cross_entropy, share=share)


@pytest.mark.parametrize("text", ["admm(rho=10)", "zerofl(0.5, upload='diff-on-weights')", "zerofl(0.5)"])
def test_a_second_end_changes_nothing(text: str) -> None:
    model, (x, y) = mlp(), samples()
    training, optimizer = parse(text).begin(model), torch.optim.SGD(model.parameters(), lr=0.1)
    training.step(optimizer, x, y, functional.cross_entropy)
    first = {name: each.clone() for tensors in training.end().values() for name, each in tensors.items()}
    weights = [weight.detach().clone() for weight in model.parameters()]
    second = {name: each for tensors in training.end().values() for name, each in tensors.items()}
    assert first.keys() == second.keys()
    assert all(torch.equal(each, second[name]) for name, each in first.items())
    assert all(torch.equal(*pair) for pair in zip(weights, model.parameters(), strict=True))
