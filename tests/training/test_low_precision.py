"""Training in 8 bits: values by hand, what layers and gradients have, batch normalization by ranges, and what is refused."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.tasks import build_model
from fedcomp.training import LocalRound, low_precision, parse
from fedcomp.training.low_precision import uniform


def test_rounding_by_hand() -> None:
    """Two bits from -1 to 2: the values -1, 0, 1 and 2."""
    x = torch.tensor([[-1.0, 0.4, 0.6, 2.0]])
    assert uniform(x, 2).tolist() == [[-1, 0, 1, 2]]
    rows = torch.tensor([[0.0, 1.4, 3.0], [0.0, 14.0, 30.0]])
    assert uniform(rows, 2, (1,)).tolist() == [[0, 1, 3], [0, 10, 30]], "each row has its own range"
    noise = torch.tensor([[0.99, 0.59, 0.61, 0.99]])
    assert uniform(x, 2, noise=noise).tolist() == [[-1, 0, 1, 2]], "1.4 + 0.59 and 1.6 + 0.61 steps, rounded down"
    assert uniform(x, 2, noise=1 - noise).tolist() == [[-1, 0, 0, 2]]


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_stochastic_rounding_takes_neighbours_and_is_right_in_the_mean(bits: int) -> None:
    generator = torch.Generator().manual_seed(bits)
    x = torch.randn(200, generator=generator)
    step = float(x.max() - x.min()) / (2**bits - 1)
    rounded = torch.stack([uniform(x, bits, noise=torch.rand(200, generator=generator)) for _ in range(2000)])
    assert float((rounded - x).abs().max()) <= step * 1.0001
    assert len(set(((rounded - x.min()) / step).round().flatten().tolist())) <= 2**bits
    most = uniform(x, bits, noise=torch.full((200,), 1 - 2.0**-24))
    assert float(most.max()) == pytest.approx(float(x.max()), rel=1e-5), "no value is above the largest entry"
    error = (rounded.mean(0) - x).abs()
    assert float(error.max()) < 6 * step / 2 / 2000**0.5


@pytest.mark.parametrize("x", [torch.zeros(3, 2), torch.full((3, 2), -7.5)])
def test_equal_values_stay_as_they_are(x: Tensor) -> None:
    assert torch.equal(uniform(x, 8), x)
    assert torch.equal(uniform(x, 8, (1,), noise=torch.full(x.shape, 0.999)), x)


def test_a_step_by_hand() -> None:
    """Weights (0, 1.4, 3) are used as (0, 1, 3), the input (0, 16, 30) as (0, 20, 30): 20 + 90 = 110.

    The one gradient of the outputs has no range to round in, so the weights get it times the rounded input.
    """
    model = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 1.4, 3.0]]))
    training = low_precision(2).begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = training.step(optimizer, torch.tensor([[0.0, 16.0, 30.0]]), torch.zeros(1), lambda y, _: y.sum())
    assert loss.item() == 110
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[0.0, 1.2, 2.7]]))


def seen_by(
    model: nn.Sequential, training: LocalRound, x: Tensor, y: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the inputs of the layers in a step, and the gradients of their outputs, by the layers' names."""
    inputs, gradients = dict[str, Tensor](), dict[str, Tensor]()

    def note(name: str, _layer: nn.Module, given: tuple[Tensor, ...], outputs: Tensor) -> None:
        inputs[name] = given[0].detach()
        assert outputs.grad_fn is not None
        outputs.grad_fn.register_prehook(lambda found: gradients.update({name: found[0]}))  # what the layer itself gets

    handles = [
        layer.register_forward_hook(partial(note, name))
        for name, layer in model.named_children()
        if list(layer.parameters())
    ]
    training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, y, functional.cross_entropy)
    for handle in handles:
        handle.remove()
    return inputs, gradients


def count(x: Tensor) -> int:
    return len(set(x.flatten().tolist()))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 36, 20),
        nn.ReLU(),
        nn.Linear(20, 5),
    )


@pytest.mark.parametrize("bits", [3, 8])
def test_each_layer_gets_few_values_a_sample_and_few_in_the_gradient_of_its_outputs(bits: int) -> None:
    model, x, y = net(), torch.randn(40, 1, 8, 8), torch.randint(5, (40,))
    inputs, gradients = seen_by(model, low_precision(bits).begin(model), x, y)
    assert inputs.keys() == gradients.keys() == {"0", "1", "4", "6"}
    for name, given in inputs.items():
        assert max(count(sample) for sample in given) <= 2**bits, name
        assert count(given) > 2**bits, f"layer {name}: each sample has its own range"
    for name, gradient in gradients.items():
        assert count(gradient) <= 2**bits, name
    weights = low_precision(bits).begin(model).weights()
    for name in ("0.weight", "4.weight", "6.weight"):
        latent = model.get_parameter(name)
        assert count(weights[name]) <= 2**bits
        torch.testing.assert_close(torch.stack(weights[name].aminmax()), torch.stack(latent.aminmax()))
    for name in ("0.bias", "1.weight", "1.bias", "4.bias", "6.bias"):
        assert weights[name] is model.get_parameter(name)


def test_the_gradient_is_right_in_the_mean_and_repeats_by_the_seed() -> None:
    """That of the rounded model, over the noise; the layers below get noise from the layers above."""
    model, x, y = net()[3:], torch.randn(30, 6, 6, 6), torch.randint(5, (30,))

    def gradient(seed: int) -> Tensor:
        training = low_precision(3).begin(model, seed=seed)
        training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, y, functional.cross_entropy)
        found = model.get_parameter("4.weight").grad
        assert found is not None
        return found.clone()

    assert torch.equal(gradient(1), gradient(1))
    assert not torch.equal(gradient(1), gradient(2))
    weights = {
        name: weight.detach().requires_grad_() for name, weight in low_precision(3).begin(model).weights().items()
    }
    hidden = functional.linear(uniform(x.flatten(1), 3, (1,)), weights["4.weight"], weights["4.bias"]).relu()
    rounded = hidden + (uniform(hidden.detach(), 3, (1,)) - hidden.detach())
    loss = functional.cross_entropy(functional.linear(rounded, weights["6.weight"], weights["6.bias"]), y)
    loss.backward()  # type: ignore[no-untyped-call]
    exact = weights["4.weight"].grad
    assert exact is not None
    mean = torch.stack([gradient(seed) for seed in range(225)]).mean(0)
    one = float((gradient(0) - exact).norm() / exact.norm())
    assert one > 0.2
    assert float((mean - exact).norm() / exact.norm()) < 2 * one / 15


@pytest.mark.parametrize("normalization", ["range", "batch"])
def test_activations_in_place_change_nothing(normalization: str) -> None:
    def gradients(*, in_place: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(inplace=in_place), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4),
            nn.ReLU(inplace=in_place), nn.Flatten(), nn.Linear(4 * 16, 8), nn.ReLU(inplace=in_place), nn.Linear(8, 3),
        )  # fmt: skip
        training = parse(f"low_precision(4, {normalization!r})").begin(model)
        x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
        training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, y, functional.cross_entropy)
        return [weight.grad for weight in model.parameters() if weight.grad is not None]

    found, right = gradients(in_place=True), gradients(in_place=False)
    assert len(found) == 10
    assert all(torch.equal(one, other) for one, other in zip(found, right, strict=True))


def test_the_output_for_a_sample_does_not_depend_on_the_others_in_its_batch() -> None:
    model, x = net().eval(), torch.randn(20, 1, 8, 8)
    used = low_precision(3).inference(model)
    torch.testing.assert_close(used(x), torch.cat([used(sample[None]) for sample in x]))


@pytest.mark.parametrize("normalization", ["range", "batch"])
def test_batch_normalization_is_by_ranges_in_training_unless_asked_otherwise(normalization: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    x = 3 * torch.randn(64, 4)
    training = parse(f"low_precision(normalization={normalization!r})").begin(model)
    training.step(torch.optim.SGD(model.parameters(), lr=0.1), x, torch.randint(2, (64,)), functional.cross_entropy)
    variance = model.get_buffer("0.running_var")
    found = ((variance - 0.9) / 0.1).sqrt() / uniform(x, 8, (1,)).std(0)
    if normalization == "batch":
        torch.testing.assert_close(found, torch.ones(4), rtol=1e-5, atol=0)
    else:
        assert ((found > 0.3) & (found < 0.8)).all(), "16 parts of four values stand for about half of their deviation"
    assert "forward" not in vars(model[0])


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "rate", "steps"),
    [("mlp", 0.05, 60), ("cnn", 0.05, 80), ("cnn_bn", 0.05, 40), ("lora", 0.05, 40), ("lstm", 0.2, 45)],
)
@pytest.mark.parametrize("bits", [4, 8])
def test_models_train_and_are_used_as_they_were_trained(name: str, rate: float, steps: int, bits: int) -> None:
    generator = torch.Generator().manual_seed(0)
    model = build_model(name, (1, 8, 8), 4, 0)
    y = torch.randint(4, (40,), generator=generator)
    x = torch.rand(40, 1, 8, 8, generator=generator) / 2 + y[:, None, None, None] / 4
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    plan = low_precision(bits)
    training = plan.begin(model)
    losses = [float(training.step(optimizer, x, y, functional.cross_entropy)) for _ in range(steps)]
    assert min(losses[-5:]) < 0.7 * losses[0]
    assert training.end() == {}
    assert (
        functional.cross_entropy(plan.inference(model)(x), y).item()
        == plan.begin(model).step(optimizer, x, y, functional.cross_entropy).item()
    )
    assert not any(
        vars(module)[hooks] for module in model.modules() for hooks in ("_forward_hooks", "_forward_pre_hooks")
    )


def test_each_vector_of_a_recurrent_layer_and_an_embedding_has_few_values() -> None:
    model = build_model("lstm", (1, 6, 8), 4, 0)
    seen: list[Tensor] = []
    with model.get_submodule("lstm").register_forward_hook(lambda _layer, inputs, _outputs: seen.append(inputs[0])):
        low_precision(2).inference(model)(torch.randn(5, 1, 6, 8, generator=torch.Generator().manual_seed(0)))
    assert max(count(vector) for vector in seen[0].flatten(0, 1)) <= 4
    assert min(count(sample) for sample in seen[0]) > 4, "each vector has its own range"
    model = build_model("char_lstm", (1, 1, 12), 20, 0)
    weights = low_precision(2).begin(model).weights()
    assert {name: count(weight) <= 4 for name, weight in weights.items()} == {
        name: weight.dim() > 1 for name, weight in model.named_parameters()
    }


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("text", ["low_precision(2)", "quantized(8, activations=2)"])
def test_a_transposed_convolution_gets_inputs_of_few_values(text: str, dims: int) -> None:
    kinds = (nn.Conv1d, nn.ConvTranspose1d), (nn.Conv2d, nn.ConvTranspose2d), (nn.Conv3d, nn.ConvTranspose3d)
    convolution, transposed = kinds[dims - 1]
    model, seen = nn.Sequential(convolution(1, 3, 1), transposed(3, 2, 2, stride=2)), list[Tensor]()
    model[1].register_forward_hook(lambda _layer, inputs, _outputs: seen.append(inputs[0]))
    parse(text).inference(model)(torch.randn(5, 1, *(4,) * dims))
    assert max(count(sample) for sample in seen[0]) <= 4


def test_it_is_close_to_training_in_float32_with_8_bits() -> None:
    """Relative to the length of the gradients of each matrix; with 4 bits they are not."""
    x, y = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(3)), torch.arange(64) % 5

    def gradients(text: str) -> dict[str, Tensor]:
        model = net()
        training = parse(text).begin(model)
        training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, y, functional.cross_entropy)
        return {
            name: weight.grad
            for name, weight in model.named_parameters()
            if weight.grad is not None and weight.dim() > 1
        }

    exact = gradients("")
    for text, least, most in (("low_precision(8, 'batch')", 0.001, 0.15), ("low_precision(4, 'batch')", 0.15, 2.0)):
        for name, gradient in gradients(text).items():
            assert least < float((gradient - exact[name]).norm() / exact[name].norm()) < most, (text, name)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("low_precision(1)", "bits is 1; .* 2 to 8"),
        ("low_precision(9)", "bits is 9; .* 2 to 8"),
        ("low_precision(normalization='layer')", "normalization is 'layer'; it is one of 'range', 'batch'"),
        ("low_precision() + quantized()", "low_precision and quantized each decide"),
    ],
)
def test_settings_out_of_range_are_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(text)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (nn.BatchNorm2d(3), r"low_precision\(\) needs trained weights of at least two dimensions"),
        (nn.Linear(2, 2).double(), r"low_precision\(\) trains float32 weights; weight has torch.float64"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model: nn.Module, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        low_precision().begin(model)


def test_a_layer_that_gets_no_rows_is_left_alone() -> None:
    """As an expert in a mixture of experts to which a batch sends no token."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.first(x), self.second(x[:0])])

    model = Experts()
    training = parse("low_precision(4)").begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert training.step(optimizer, torch.randn(8, 4), torch.arange(8) % 2, functional.cross_entropy).isfinite()
