"""Quantized networks: values and gradients by hand, what the model is called with, and what is left out."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.tasks import build_model
from fedcomp.training import Inference, pack, parse, quantized
from fedcomp.training.quantized import quantize_activation, quantize_weight

WEIGHT = torch.tensor([[0.6, -0.2], [0.1, -1.1]])


@pytest.mark.parametrize(
    ("bits", "scaled", "expected"),
    [
        ("binary", False, [[1, -1], [1, -1]]),
        ("binary", True, [[0.5, -0.5], [0.5, -0.5]]),  # the mean of 0.6, 0.2, 0.1 and 1.1
        ("ternary", False, [[1, 0], [0, -1]]),
        ("ternary", True, [[0.85, 0], [0, -0.85]]),  # above 0.7 * 0.5 are 0.6 and 1.1
        (2, False, [[0.5, 0], [0, -1]]),  # multiples of 1/2
        (3, False, [[0.5, -0.25], [0, -1]]),  # multiples of 1/4; 0.1 / 0.25 rounds to 0
        (4, True, [[0.55, -0.1375], [0.1375, -1.1]]),  # multiples of 1.1 / 8
        # Steps of 1/2, then of <w, k> / <k, k> = (0.9 + 0.1 + 0.05 + 1.65) / 5 for k = (1.5, -0.5, 0.5, -1.5).
        (2, True, [[0.81, -0.27], [0.27, -0.81]]),
        # Steps of 1/4, then of (1.5 + 0.1 + 0.05 + 3.85) / 19 for k = (2.5, -0.5, 0.5, -3.5).
        (3, True, [[13.75 / 19, -2.75 / 19], [2.75 / 19, -19.25 / 19]]),
    ],
)
def test_weights_by_hand(bits: int | str, scaled: bool, expected: list[list[float]]) -> None:
    torch.testing.assert_close(
        quantize_weight(WEIGHT, bits, scaled=scaled), torch.tensor(expected, dtype=torch.float32)
    )


@pytest.mark.parametrize(
    ("bits", "signed", "x", "expected", "gradient"),
    [
        (1, False, [0.2, 0.6, 3.0], [0, 1, 1], [1, 1, 0]),
        (2, False, [0.2, 0.6, 3.0], [1 / 3, 2 / 3, 1], [1, 1, 0]),
        (2, False, [-0.2, 0.6, 0.0], [0, 2 / 3, 0], [0, 1, 1]),
        (1, True, [-0.2, 0.6, -3.0], [-1, 1, -1], [1, 1, 0]),
        (1, True, [0.0, -0.0, 0.1], [1, 1, 1], [1, 1, 1]),
        (2, True, [-0.2, 0.6, -3.0], [0, 0.5, -1], [1, 1, 0]),
        (3, True, [0.2, 0.6, 3.0], [0.25, 0.5, 0.75], [1, 1, 0]),
        (3, True, [0.0, -0.6, 0.1], [0, -0.5, 0], [1, 1, 1]),
    ],
)
def test_activations_and_their_gradients_by_hand(
    bits: int, signed: bool, x: list[float], expected: list[float], gradient: list[float]
) -> None:
    given = torch.tensor(x, requires_grad=True)
    rounded = quantize_activation(given, bits, signed=signed)
    rounded.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(rounded.detach(), torch.tensor(expected, dtype=torch.float32))
    assert given.grad is not None
    assert given.grad.tolist() == gradient


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bits", ["binary", "ternary", 2, 3, 8])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_weight_is_rounded_to_the_nearest_of_its_few_values(bits: int | str, scaled: bool, seed: int) -> None:
    """Of those between the least and the largest of the values; ternary weights have another threshold."""
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(seed))
    rounded = quantize_weight(weight, bits, scaled=scaled)
    values = distinct(rounded)
    assert len(values) <= {"binary": 2, "ternary": 3}.get(str(bits), 2 ** int(bits) if isinstance(bits, int) else 0)
    if bits != "ternary":
        nearest = (weight[..., None] - values).abs().amin(-1)
        torch.testing.assert_close((weight - rounded).abs(), nearest, rtol=1e-5, atol=1e-6)
    assert torch.all(rounded * weight >= 0)


@pytest.mark.parametrize("kind", ["normal", "heavy", "even", "few", "two"])
@pytest.mark.parametrize("seed", range(3))
def test_more_bits_are_no_further_from_the_weights(kind: str, seed: int) -> None:
    """With a factor of the layer: 2 bits have room for the ternary values."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(60, 50, generator=generator)
    weight = {
        "normal": normal,
        "heavy": normal**3,
        "even": torch.rand(60, 50, generator=generator) - 0.5,
        "few": normal * (torch.rand(60, 50, generator=generator) < 0.1),
        "two": torch.where(normal > 0, 0.7, -0.3),
    }[kind]
    binary, ternary, two, three = (
        float((quantize_weight(weight, bits, scaled=True) - weight).square().sum())
        for bits in ("binary", "ternary", 2, 3)
    )
    assert two <= min(binary, ternary) * (1 + 1e-5)
    assert three <= ternary * (1 + 1e-5)
    assert kind in ("heavy", "few", "two") or three < 0.7 * two < 0.7 * 0.9 * ternary


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("bits", ["binary", "ternary", 2, 3, 4])
def test_weights_of_zeros_have_no_value_that_is_no_number(bits: int | str, scaled: bool) -> None:
    assert torch.isfinite(quantize_weight(torch.zeros(3, 3), bits, scaled=scaled)).all()


def test_a_binary_weight_of_zero_is_positive() -> None:
    assert quantize_weight(torch.tensor([-2.0, 0.0, 1.0]), "binary", scaled=False).tolist() == [-1, 1, 1]


def test_a_step_has_the_gradient_of_the_quantized_weights() -> None:
    """By hand: w = (0.6, -0.2) is used as (1, -1), x = (2, 1); y = 1 and loss = y^2 / 2 have the gradient y x = (2, 1)."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.6, -0.2]]))
    training = quantized("binary", scale="none").begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = training.step(optimizer, torch.tensor([[2.0, 1.0]]), torch.zeros(1), lambda y, _: y.square().sum() / 2)
    assert loss.item() == 0.5
    # 0.6 - 0.5 * 2 = -0.4, and -0.2 - 0.5 * 1 = -0.7
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[-0.4, -0.7]]))


@pytest.mark.parametrize(("scale", "largest"), [("none", 1.0), ("layer", 5.0)])
def test_latent_weights_without_a_scale_stay_within_one(scale: str, largest: float) -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 5.0)
    training = parse(f"quantized(scale={scale!r})").begin(model)
    training.step(torch.optim.SGD(model.parameters(), lr=0.0), torch.ones(1, 1), torch.zeros(1), lambda y, _: y.sum())
    assert model.weight.item() == largest


def distinct(x: Tensor) -> Tensor:
    return torch.tensor(sorted(set(x.flatten().tolist())))


def inputs_of_layers(model: nn.Sequential, text: str, x: Tensor) -> list[Tensor]:
    """Return what the linear layers of a model in the hands of a plug-in get."""
    seen: list[Tensor] = []
    used = parse(text).inference(model)
    training = parse(text).begin(model)
    for call in (used, training.outputs):
        handles = [
            layer.register_forward_hook(lambda _layer, inputs, _output: seen.append(inputs[0].detach()))
            for layer in model
            if isinstance(layer, nn.Linear)
        ]
        call(x)
        for handle in handles:
            handle.remove()
    half = len(seen) // 2
    assert all(torch.equal(one, other) for one, other in zip(seen[:half], seen[half:], strict=True))
    return seen[:half]


@pytest.mark.parametrize("signed", [False, True])
def test_layers_after_the_first_get_inputs_of_few_bits_in_training_and_inference(signed: bool) -> None:
    torch.manual_seed(0)
    between = nn.Tanh if signed else nn.ReLU
    model = nn.Sequential(nn.Linear(4, 50), between(), nn.Linear(50, 60), between(), nn.Linear(60, 2))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)  # so that some activations are at the ends
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    first, second, third = inputs_of_layers(model, f"quantized(8, activations=2, signed={signed})", x)
    assert torch.equal(first, x)
    values = torch.tensor([-1, -0.5, 0, 0.5] if signed else [0, 1 / 3, 2 / 3, 1])
    torch.testing.assert_close(distinct(second), values)
    torch.testing.assert_close(distinct(third), values)
    plain = model[:2](x)
    assert torch.equal(model(x), model[2:](plain)), "the model itself stays as it was"


def test_the_first_layer_is_the_one_that_is_called_first() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.stem = nn.Linear(50, 2), nn.Linear(4, 50)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.stem(x))
            return logits

    torch.manual_seed(0)
    model, x, seen = Model(), torch.randn(30, 4), dict[str, Tensor]()
    model.stem.register_forward_hook(lambda _layer, inputs, _output: seen.update(stem=inputs[0]))
    model.head.register_forward_hook(lambda _layer, inputs, _output: seen.update(head=inputs[0].detach()))
    plan = quantized(8, activations=1)
    for call in (plan.inference(model), plan.begin(model).outputs):
        for _ in range(2):
            call(x)
            assert torch.equal(seen["stem"], x)
            assert distinct(seen["head"]).tolist() == [0, 1]


@pytest.mark.parametrize("signed", [False, True])
def test_the_output_for_a_sample_does_not_depend_on_the_others_in_its_batch(signed: bool) -> None:
    """Some samples have no negative activations here, others have."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    nn.init.constant_(model.get_parameter("0.bias"), 0.5)
    x = torch.randn(40, 4)
    negative = (model[:2](x) < 0).any(1)
    assert 0 < int(negative.sum()) < 40
    used = quantized("binary", activations=2, signed=signed).inference(model)
    torch.testing.assert_close(used(x), torch.cat([used(sample[None]) for sample in x]))


def test_a_recurrent_layer_gets_a_packed_sequence_of_few_bits() -> None:
    """It returns for each sequence what it returns for that sequence alone."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.lstm = nn.Linear(4, 4), nn.LSTM(4, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            lengths = torch.arange(len(x), 0, -1)
            sequences = nn.utils.rnn.pack_padded_sequence(self.first(x), lengths, batch_first=True)
            states: Tensor = self.lstm(sequences)[1][0][-1]
            return states

    torch.manual_seed(0)
    model, x = Packed(), torch.randn(3, 3, 4)
    used = quantized(4, activations=2, signed=True).inference(model)
    seen: list[Tensor] = []
    with model.lstm.register_forward_hook(lambda _layer, inputs, _outputs: seen.append(inputs[0].data)):
        torch.testing.assert_close(used(x)[2:], used(x[2:, :1]))
    assert set(distinct(seen[0]).tolist()) <= {-1, -0.5, 0, 0.5}
    assert len(distinct(seen[0])) > 2


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "rate", "steps"), [("mlp", 0.05, 60), ("cnn", 0.05, 80), ("lora", 0.05, 40), ("lstm", 0.2, 45)]
)
@pytest.mark.parametrize("text", ["quantized()", "quantized('ternary', activations=4)", "quantized(4)"])
def test_models_train_and_are_used_with_their_few_values(name: str, rate: float, steps: int, text: str) -> None:
    """The loss falls, and each matrix has the bytes of its bits."""
    generator = torch.Generator().manual_seed(0)
    model = build_model(name, (1, 8, 8), 4, 0)
    y = torch.randint(4, (40,), generator=generator)
    x = torch.rand(40, 1, 8, 8, generator=generator) / 2 + y[:, None, None, None] / 4
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    plan = parse(text.replace("=4", f"=4, signed={name in ('lora', 'lstm')}"))
    training = plan.begin(model)
    losses = [float(training.step(optimizer, x, y, functional.cross_entropy)) for _ in range(steps)]
    assert min(losses[-5:]) < 0.7 * losses[0]
    used = plan.inference(model)
    assert (
        functional.cross_entropy(used(x), y).item() == training.step(optimizer, x, y, functional.cross_entropy).item()
    )
    assert isinstance(used, Inference)
    tensors = used.tensors()
    assert list(tensors) == list(model.state_dict())
    width = {"quantized()": 1, "quantized(4)": 4}.get(text, 2)
    for key, tensor in tensors.items():
        if tensor.dim() > 1:
            size = sum(part.nbytes for part in pack({key: tensor}).values())
            shape = 8 * tensor.dim()
            assert size <= tensor.numel() * width / 8 + 1 + 4 * 2**width + shape
        else:
            assert torch.equal(tensor, model.state_dict()[key])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("quantized(1)", "bits is 1; .* 2 to 8"),
        ("quantized(9)", "bits is 9; .* 2 to 8"),
        ("quantized('tiny')", "bits is 'tiny'; it is one of 'binary', 'ternary'"),
        ("quantized(activations=9)", "activations is 9; .* 0 to 8"),
        ("quantized(signed=1)", "signed is 1"),
        ("quantized(hidden=9)", "hidden is 9"),
        ("quantized(scale='row')", "scale is 'row'; it is one of 'layer', 'none'"),
    ],
)
def test_settings_out_of_range_are_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(text)


@pytest.mark.parametrize(
    ("model", "text", "named"),
    [
        (nn.BatchNorm2d(3), "quantized()", "at least two dimensions; the model has none"),
        (nn.Linear(2, 2).double(), "quantized()", "float32 weights; weight has torch.float64"),
        (nn.Linear(2, 2), "quantized(activations=2)", "the model has no second layer"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model: nn.Module, text: str, named: str) -> None:
    for use in (lambda: parse(text).begin(model), lambda: parse(text).inference(model)):
        with pytest.raises(ValueError, match=named):
            use()
