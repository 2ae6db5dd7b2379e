"""Plug-ins and optimizers on every device: they end near where the CPU does, and go on from a state that was on the CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from clients.optimizers import OPTIMIZERS, Rates
from fedcomp.tasks import build_model
from fedcomp.training import parse

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])


def weight_after(text: str, device: str, steps: int = 3) -> torch.Tensor:
    """Return the weights after some steps on seeded images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * 6 * 6, 3)).to(device)
    x, y = torch.rand(8, 2, 6, 6).to(device), torch.randint(3, (8,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training = parse(text).begin(model, seed=4)
    for _ in range(steps):
        training.step(optimizer, x, y, functional.cross_entropy)
    return next(iter(model.parameters())).detach().cpu()


@devices
@pytest.mark.parametrize(
    "text",
    [
        "",
        "fedprox(0.5)",
        "batch_augmentation(4, shift=1, mirror=True, cutout=2)",
        "mixed_precision()",
        "mixed_precision() + fedprox(0.5) + batch_augmentation(2)",
    ],
)
def test_a_plan_trains_on_a_device_as_in_float32_on_the_cpu(text: str, device: str) -> None:
    """The seed draws the same variants on each device."""
    exact = weight_after(text.replace("mixed_precision() + ", "").replace("mixed_precision()", ""), "cpu")
    tolerance = 0.02 if "mixed" in text else 1e-5
    torch.testing.assert_close(weight_after(text, device), exact, rtol=tolerance, atol=tolerance)


@devices
@pytest.mark.parametrize("text", ["activation_compression(0.01)", "mixed_precision() + activation_compression(0.01)"])
def test_activations_are_compressed_on_a_device(text: str, device: str) -> None:
    """Codes, bitmaps, indices and pooling inputs without memory; weights move by as much as on the CPU, about."""
    model = build_model("cnn", (1, 12, 12), 10, 0).to(device)
    exact = build_model("cnn", (1, 12, 12), 10, 0)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(32, 1, 12, 12, generator=generator), torch.randint(10, (32,), generator=generator)
    plans = ((model, text, x.to(device), y.to(device)), (exact, "", x, y))
    for each, plan, images, labels in plans:
        optimizer = torch.optim.SGD(each.parameters(), lr=0.0)
        training = parse(plan).begin(each)
        for _ in range(2):
            training.step(optimizer, images, labels, functional.cross_entropy)
    for name, weight in exact.named_parameters():
        found, right = dict(model.named_parameters())[name].grad, weight.grad
        assert found is not None
        assert right is not None
        error = float((found.cpu() - right).norm() / right.norm())
        if "mixed" in text:
            assert error < 0.1
        else:
            assert error < 1e-5 if name.startswith("0") or "bias" in name else 0.002 < error < 0.02


@cuda
def test_float16_trains_on_a_gpu() -> None:
    """The first steps overflow until the scale fits."""
    after = weight_after("mixed_precision('float16')", "cuda", steps=30)
    torch.testing.assert_close(after, weight_after("", "cpu", steps=30), rtol=0.1, atol=0.05)


def after_two_rounds(text: str, device: str, optimizer_name: str = "sgd") -> dict[str, torch.Tensor]:
    """Return what two rounds of training leave, the node's state and its report on the CPU in between, as on a node."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(16, 1, 8, 8, generator=generator), torch.randint(4, (16,), generator=generator)
    plan, kind = parse(text), OPTIMIZERS[optimizer_name]
    model = plan.prepare(build_model("cnn", (1, 8, 8), 4, 0).to(device), seed=0)
    weights, kept = dict(model.named_parameters()), dict[str, torch.Tensor]()
    state: dict[str, dict[str, torch.Tensor]] = {}
    left: dict[str, torch.Tensor] = {}
    for _ in range(2):
        training = plan.begin(model, state, seed=4)
        optimizer = kind(weights, Rates(0.02, 0.9, 0.0), kept)
        for _ in range(3):
            training.step(optimizer, x.to(device), y.to(device), functional.cross_entropy)
        left |= {f"report of {name}": tensor for name, tensor in training.report().items()}
        state = {part: {name: tensor.cpu() for name, tensor in each.items()} for part, each in training.end().items()}
        kept = {name: tensor.cpu() for name, tensor in optimizer.state().items()}
    outputs = plan.inference(model)(x.to(device))
    assert all(
        tensor.device.type == device for tensor in [outputs, *weights.values(), *model.buffers(), *left.values()]
    )
    left |= {f"{part} of {name}": tensor for part, each in state.items() for name, tensor in each.items()}
    left |= {f"kept {name}": tensor for name, tensor in kept.items()} | {"outputs": outputs, **model.state_dict()}
    return {name: tensor.detach().cpu() for name, tensor in left.items()}


def assert_near(found: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    """A few entries may change sides where values are rounded or chosen."""
    assert found.keys() == right.keys()
    for name, tensor in right.items():
        difference = float((found[name].double() - tensor.double()).norm())
        assert difference <= 0.05 * float(tensor.double().norm()), name


@devices
@pytest.mark.parametrize(
    "text", ["admm(interval=2)", "quantized('ternary', activations=4)", "zerofl()", "rigl(0.3)", "low_precision()"]
)
def test_weights_reports_and_states_on_a_device_are_those_of_the_cpu(text: str, device: str) -> None:
    """The second round goes on from a state that has been on the CPU."""
    found, right = after_two_rounds(text, device), after_two_rounds(text, "cpu")
    assert_near(found, right)
    assert any(name.startswith("admm") for name in found) == text.startswith("admm")
    assert any(name.startswith("report of") for name in found) == text.startswith("rigl")


@devices
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_state_of_an_optimizer_comes_back_to_a_device(optimizer: str, device: str) -> None:
    found = after_two_rounds("", device, optimizer)
    assert_near(found, after_two_rounds("", "cpu", optimizer))
    assert found["0.weight"].shape == found[f"kept 0.weight{':first' if optimizer == 'adam' else ''}"].shape
    if optimizer == "adam":
        assert found["kept steps"] == 6
