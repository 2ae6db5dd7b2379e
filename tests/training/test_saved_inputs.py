"""Saved tensors: whose input they are, changes in place, and layers as they were afterwards."""

from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.training.saved_inputs import Call, Restore, exact, replacing, trained_layers


class OwnLinear(nn.Linear):
    """Saves more than its input."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        return super().forward(input).square()


def test_layers_are_those_that_are_trained_and_as_torch_has_them() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Linear(2, 2), nn.LSTM(2, 2), OwnLinear(2, 2), nn.Linear(2, 2)
    )
    model[2].requires_grad_(False)
    assert list(trained_layers(model)) == ["0", "5"]


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_inputs_are_known_and_weights_and_the_loss_are_not_among_them(dtype: torch.dtype | None) -> None:
    """Under autocast, the saved tensors are copies."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(32, 5), nn.Tanh()
    )
    seen: list[tuple[str, tuple[int, ...]]] = []

    def save(tensor: Tensor, call: Call | None) -> Restore:
        if call is not None and call.saves_input(tensor):
            seen.append((call.name, tuple(tensor.shape)))
        return exact(tensor)

    x = torch.randn(3, 1, 4, 4)
    with (
        replacing(trained_layers(model), save),
        torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None),
    ):
        functional.cross_entropy(model(x), torch.zeros(3, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
    assert seen == [("0", (3, 1, 6, 6)), ("2", (3, 32))]


@pytest.mark.parametrize("rows", [63, 64])
def test_a_copy_of_the_input_may_have_the_shape_of_the_weight(rows: int) -> None:
    """Autocast saves 16-bit copies of both; with 64 rows they are alike in shape, and only the input counts."""
    model = nn.Sequential(nn.Embedding(30, 50), nn.Linear(50, 64), nn.LayerNorm(64), nn.Linear(64, 64, bias=False))
    found: list[tuple[str, bool]] = []

    def save(tensor: Tensor, call: Call | None) -> Restore:
        if call is not None and tensor.dtype == torch.bfloat16:
            weight = cast("Tensor", call.module.weight).bfloat16()
            is_weight = torch.equal(tensor, weight) or torch.equal(tensor, weight.T)
            found.append((call.name, is_weight))
            assert call.saves_input(tensor) != is_weight
        return exact(tensor)

    with replacing(trained_layers(model), save), torch.autocast("cpu", torch.bfloat16):
        model(torch.arange(rows) % 30).sum().backward()
    assert sorted(found) == [("1", False), ("1", True), ("3", False), ("3", True)]


def test_what_is_restored_is_what_the_gradient_is_computed_from() -> None:
    layer, x = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0]])
    outputs: list[tuple[str, float]] = []

    def save(tensor: Tensor, call: Call | None) -> Restore:
        return (lambda: 10 * x) if call is not None and call.saves_input(tensor) else exact(tensor)

    with replacing({"layer": layer}, save, lambda name, _module, output: outputs.append((name, output.item()))):
        output = layer(x)
        output.sum().backward()
    assert cast("Tensor", layer.weight.grad).tolist() == [[10.0, 20.0]]
    assert outputs == [("layer", output.item())]


def test_a_layer_is_as_before_after_an_error_and_within_another_context() -> None:
    layer = nn.Linear(2, 1)

    def save(tensor: Tensor, _call: Call | None) -> Restore:
        return exact(tensor)

    with replacing({"outer": layer}, save):
        outer = vars(layer)["forward"]
        with pytest.raises(RuntimeError, match="shapes"), replacing({"inner": layer}, save):
            layer(torch.ones(1, 3))
        assert vars(layer)["forward"] is outer
    assert "forward" not in vars(layer)


def test_a_change_in_place_is_an_error_as_in_autograd() -> None:
    layer, x = nn.Linear(2, 1), torch.ones(1, 2)

    def save(tensor: Tensor, _call: Call | None) -> Restore:
        return exact(tensor)

    with replacing({}, save):
        output = layer(x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match=r"\(1, 2\).*changed in place"):
        output.sum().backward()
