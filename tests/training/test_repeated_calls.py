"""Modules that are called again in the backward pass, as by gradient checkpointing: the right gradients, or a sentence."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.nn import functional
from torch.nn.modules import module
from torch.utils.checkpoint import checkpoint

from fedcomp.training import parse

X, Y = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 4
Call = Callable[[nn.Module, Tensor], Tensor]


def plainly(block: nn.Module, x: Tensor) -> Tensor:
    return block(x)  # type: ignore[no-any-return]


def reentrant(block: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(block, x, use_reentrant=True)  # type: ignore[no-any-return]


def not_reentrant(block: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(block, x, use_reentrant=False)  # type: ignore[no-any-return]


def saved_elsewhere(block: nn.Module, x: Tensor) -> Tensor:
    with save_on_cpu():
        return block(x)  # type: ignore[no-any-return]


class Model(nn.Module):
    """Calls its block in some way; the output of the block's ReLU is used by a product, too."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.call = call
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 4)
        self.block = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        x = self.call(self.block, torch.relu(self.first(x)))
        return self.last(torch.softmax(x * self.scale, 1) * x + x)  # type: ignore[no-any-return]


def gradients(text: str, call: Call) -> dict[str, Tensor]:
    model = Model(call)
    training = parse(text).begin(model, seed=1)
    training.step(torch.optim.SGD(model.parameters(), lr=0.0), X, Y, functional.cross_entropy)
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("call", [reentrant, not_reentrant, saved_elsewhere])
@pytest.mark.parametrize(
    "text", ["fedprox(0.1)", "mixed_precision()", "admm('ternary')", "activation_compression(0.01)"]
)
def test_the_gradients_are_those_of_a_model_that_is_called_once(text: str, call: Call) -> None:
    right, found = gradients(text, plainly), gradients(text, call)
    assert right.keys() == found.keys()
    for name, gradient in right.items():
        error = float((found[name] - gradient).norm() / gradient.norm())
        assert error < (0.02 if text.startswith("activation") else 1e-6), name


@pytest.mark.parametrize("call", [reentrant, not_reentrant])
@pytest.mark.parametrize(
    "text",
    ["quantized('ternary')", "quantized('ternary', activations=2)", "low_precision(2)", "zerofl(0.8, upload='full')"],
)
def test_plug_ins_that_would_be_missing_in_the_second_call_are_named(text: str, call: Call) -> None:
    assert gradients(text, saved_elsewhere).keys() == gradients(text, plainly).keys()
    with pytest.raises(
        ValueError, match=rf"the module 'block.*' is called again .* without {text.partition('(')[0]}\("
    ):
        gradients(text, call)
    assert not module._global_forward_pre_hooks, "no hook is left"  # noqa: SLF001


def test_a_relu_before_the_step_is_not_taken_for_one_of_the_model() -> None:
    def gradient_of(text: str) -> Tensor:
        weight = torch.ones(64, requires_grad=True)
        model = Model(plainly)
        training = parse(text).begin(model)
        x = torch.relu(X * weight)
        training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, Y, functional.cross_entropy)
        assert weight.grad is not None
        return weight.grad

    right, found = gradient_of(""), gradient_of("activation_compression(0.01)")
    assert float((found - right).norm() / right.norm()) < 0.02
