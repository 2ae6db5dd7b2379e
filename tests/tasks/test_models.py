"""The models: parameter counts, shapes, seeds, and shapes that do not fit."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fedcomp.tasks.first_weights import HeConv2d, ZeroLinear, draw_weights
from fedcomp.tasks.models import MODELS, AdaptedLinear, Shape, build_model
from fedcomp.wire.statistics import batchnorm_statistics

IMAGE_MODELS = [name for name in MODELS if name != "char_lstm"]
WINDOWS: Shape = (1, 1, 32)


def shape_for(name: str, shape: Shape) -> Shape:
    """Return `shape`, or for a model of text that of its windows."""
    return shape if name in IMAGE_MODELS else WINDOWS


def size(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("logistic", (1, 32, 32), 10_250),
        ("logistic", (1, 28, 28), 7_850),
        ("mlp", (1, 8, 8), 19_210),
        ("cnn", (1, 8, 8), 13_706),
        ("cnn", (1, 32, 32), 136_586),
        ("cnn_bn", (1, 8, 8), 13_802),
        ("lora", (1, 8, 8), 17_930),
        ("kws_cnn", (1, 32, 32), 876_938),
        ("lstm", (1, 32, 32), 216_330),
        ("vgg11s", (3, 32, 32), 865_482),
        ("char_lstm", WINDOWS, 10 * 32 + 4 * 128 * (32 + 128 + 2) + 129 * 10),
    ],
)
def test_a_model_has_the_parameter_count_of_its_paper(name: str, shape: Shape, parameters: int) -> None:
    assert size(build_model(name, shape, 10, seed=0)) == parameters


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize("shape", [(1, 32, 32), (3, 32, 40), (2, 65, 33)])
def test_a_model_maps_images_to_logits(name: str, shape: Shape) -> None:
    model = build_model(name, shape, 7, seed=0)
    logits = model(torch.randn(3, *shape, generator=torch.Generator().manual_seed(1)))
    assert logits.shape == (3, 7)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_alone_decides_the_weights_and_torchs_random_state_does_not_change(name: str) -> None:
    torch.manual_seed(99)
    before = torch.get_rng_state()
    shape = shape_for(name, (1, 32, 32))
    first, other = (build_model(name, shape, 10, seed) for seed in (5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = build_model(name, shape, 10, 5)
    statistics = batchnorm_statistics({key: tensor.numpy() for key, tensor in first.state_dict().items()})
    assert first.state_dict().keys() - statistics == dict(first.named_parameters()).keys(), "the others are trained"
    assert bool(statistics) == (name == "cnn_bn")
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_frozen_layers_are_equal_on_all_nodes_and_adapters_start_without_effect() -> None:
    first, other = (build_model("lora", (1, 8, 8), 10, seed) for seed in (5, 6))
    for a, b in zip(first.buffers(), other.buffers(), strict=True):
        assert torch.equal(a, b)
    layer = next(module for module in first.modules() if isinstance(module, AdaptedLinear))
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(layer(x), nn.functional.linear(x, layer.get_buffer("frozen")))


def test_the_lstm_reads_rows() -> None:
    """A change of only the last row reaches the logits through one step; swapping rows changes them."""
    model = build_model("lstm", (1, 4, 4), 3, seed=0)
    image = torch.tensor(np.random.default_rng(0).random((1, 1, 4, 4), dtype=np.float32))
    states, _ = model.get_submodule("lstm")(image[0])  # (1, 4, 4): one image as four rows of four
    assert torch.allclose(model(image), model.get_submodule("head")(states[:, -1]))
    assert not torch.allclose(model(image), model(image.flip(2)))


def test_the_character_model_reads_codes_in_order() -> None:
    """Floats are rounded, and codes that no character has become the nearest one."""
    model = build_model("char_lstm", (1, 1, 3), 5, seed=0)
    codes = torch.tensor([[[[0.0, 4.0, 2.0]]]])
    states, _ = model.get_submodule("lstm")(model.get_parameter("embedding.weight")[[0, 4, 2]])
    assert torch.allclose(model(codes), model.get_submodule("head")(states[-1:]))
    assert torch.equal(model(codes), model(torch.tensor([[[[-7.0, 300.0, 1.6]]]])))
    assert not torch.allclose(model(codes), model(codes.flip(3)))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "seed", "named"),
    [
        ("vgg11s", (1, 8, 8), 10, 0, "8x8; .*vgg11s .*32x32"),
        ("vgg11s", (3, 32, 31), 10, 0, "32x31; .*vgg11s .*32x32"),
        ("kws_cnn", (1, 8, 8), 10, 0, "8x8; .*kws_cnn .*16x16"),
        ("cnn", (1, 1, 64), 10, 0, "1x64; .*cnn .*4x4"),
        ("resnet", (1, 8, 8), 10, 0, "'resnet'; .*logistic, mlp, cnn, cnn_bn, lora, kws_cnn, lstm, vgg11s, char_lstm"),
        ("char_lstm", (1, 8, 8), 10, 0, r"\(1, 8, 8\); .*char_lstm .*\(1, 1, T\)"),
        ("char_lstm", (3, 1, 32), 10, 0, r"\(3, 1, 32\); .*char_lstm"),
        ("mlp", (1, 0, 8), 10, 0, r"\(1, 0, 8\) and 10 classes"),
        ("mlp", (1, 8, 8), 1, 0, "1 classes"),
        ("mlp", (1, 8, 8), 10, -1, "seed is -1;"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name: str, shape: Shape, classes: int, seed: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build_model(name, shape, classes, seed)


def test_the_smallest_allowed_images_fit() -> None:
    for name, side in (("cnn", 4), ("kws_cnn", 16), ("vgg11s", 32)):
        assert build_model(name, (1, side, side), 2, seed=0)(torch.zeros(1, 1, side, side)).shape == (1, 2)


@pytest.mark.parametrize(("name", "shape"), [("cnn", (1, 32, 32)), ("kws_cnn", (1, 32, 32)), ("vgg11s", (3, 32, 32))])
def test_relu_and_pooling_commute_to_the_bit(name: str, shape: Shape) -> None:
    """The order is for speed: values and gradients equal those of the papers' order."""
    model = build_model(name, shape, 10, seed=0)
    layers = list(model.children())
    for at in reversed(range(len(layers) - 1)):
        if isinstance(layers[at], nn.MaxPool2d):
            layers[at : at + 2] = layers[at + 1], layers[at]
    assert any(isinstance(second, nn.MaxPool2d) and isinstance(first, nn.ReLU) for first, second in pairwise(layers))
    x = torch.randn(20, *shape, generator=torch.Generator().manual_seed(1))
    given = [gradients(network, x) for network in (model, nn.Sequential(*layers))]
    assert all(torch.equal(one, other) for one, other in zip(*given, strict=True))


def gradients(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the logits, and the gradients of their squares' sum."""
    logits = model(x)
    return (logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters())))


@pytest.mark.parametrize(("name", "shape"), [("cnn", (1, 32, 32)), ("vgg11s", (3, 32, 32))])
def test_convolutions_stay_channels_last_when_weights_are_loaded(name: str, shape: Shape) -> None:
    model, other = build_model(name, shape, 10, seed=0), build_model(name, shape, 10, seed=1)
    arrays = {key: tensor.numpy().copy() for key, tensor in other.state_dict().items()}
    model.load_state_dict({key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()})
    filters = [layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert filters
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in filters)
    assert all(np.array_equal(tensor.numpy(), arrays[key]) for key, tensor in model.state_dict().items())


def test_the_signal_of_vgg11s_does_not_fade() -> None:
    """With torch's default weights the last features of two images differ by 0.0001, and SGD learns nothing."""
    x = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for seed in range(3):
        model = build_model("vgg11s", (3, 32, 32), 10, seed)
        assert isinstance(model, nn.Sequential)
        features = model[: next(at for at, layer in enumerate(model) if isinstance(layer, nn.Flatten))](x).flatten(1)
        assert 0.01 < features.std(0).mean() < 10


def test_the_first_weights_are_the_same_bits_on_every_machine() -> None:
    """Written down once; numpy promises the words of PCG64, and one product each is rounded as IEEE 754 says."""
    digests = {}
    for name in MODELS:
        digest = hashlib.sha256()
        for tensor in build_model(name, shape_for(name, (3, 32, 32)), 10, seed=7).state_dict().values():
            digest.update(tensor.contiguous().numpy().astype("<f4").tobytes())
        digests[name] = digest.hexdigest()[:16]
    assert digests == {
        "logistic": "5562922067c0e178",
        "mlp": "63d99f27a7e85ed6",
        "cnn": "b1337b208a61b70e",
        "cnn_bn": "53d540f91a9e55ed",
        "lora": "da3b678df706cb37",
        "kws_cnn": "d6676128cef24c8f",
        "lstm": "37b4f5b2a8c8f303",
        "vgg11s": "4b06bfd6a82f3bea",
        "char_lstm": "b52a57f77c321ebe",
    }


@pytest.mark.parametrize("name", MODELS)
def test_the_first_weights_have_the_variance_of_torchs_layers(name: str) -> None:
    model = build_model(name, shape_for(name, (3, 32, 32)), 59, seed=3)
    for module in model.requires_grad_(False).modules():
        if not isinstance(module, nn.Linear | nn.Conv2d | nn.LSTM | nn.Embedding) or isinstance(
            module, HeConv2d | ZeroLinear
        ):
            continue
        drawn = {key: value.clone() for key, value in module.named_parameters()}
        module.reset_parameters()
        for key, parameter in module.named_parameters():
            if parameter.numel() > 1000:
                assert float(drawn[key].std()) == pytest.approx(float(parameter.std()), rel=0.05)
                assert abs(float(drawn[key].mean())) < 0.1 * float(drawn[key].std())


def test_a_layer_without_a_known_start_is_refused() -> None:
    with pytest.raises(ValueError, match="GroupNorm"):
        draw_weights(nn.GroupNorm(1, 3), 0)
