"""Plug-ins on every device: a step ends near that of the CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional

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
