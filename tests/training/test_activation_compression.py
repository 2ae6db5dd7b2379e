"""Activation compression: gradients within the error model, memory that is free again, and modules as they were."""

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

from fedcomp.tasks import build_model
from fedcomp.training import LocalRound, State, parse
from fedcomp.training.activation_codes import Codes
from fedcomp.training.activation_compression import LayerStatistics, error_bound

BATCH = 48
Loss = Callable[[Tensor, Tensor], Tensor]


def images(seed: int = 0, channels: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(BATCH, channels, 12, 12, generator=generator), torch.randint(10, (BATCH,), generator=generator)


def network(name: str) -> nn.Module:
    if name == "conv":
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 32), nn.ReLU(), nn.Linear(32, 10),
        )  # fmt: skip
    return build_model(name, (1, 12, 12), 10, 0)


def gradients(
    text: str,
    model: nn.Module,
    steps: int = 2,
    loss: Loss = functional.cross_entropy,
    state: State | None = None,
    seed: int = 0,
) -> tuple[dict[str, Tensor], State]:
    """Return the gradients of the last step, on weights that do not change, and what the round returns."""
    training = parse(text).begin(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(steps):
        training.step(optimizer, *images(seed), loss)
    return {name: cast("Tensor", each.grad).clone() for name, each in model.named_parameters()}, training.end()


def relative_errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """Return the root mean square of each gradient's error over the gradient's mean magnitude."""
    pairs = {name: (found[name] - exact[name], exact[name]) for name in exact}
    return {name: float(error.square().mean().sqrt() / right.abs().mean()) for name, (error, right) in pairs.items()}


def bounds(state: State) -> list[float]:
    (tensors,) = state.values()
    return [float(bound) for bound in tensors["bounds"]]


def test_the_bound_of_a_layer_by_hand() -> None:
    """Variances of 1 and 2 times eb^2 in two calls: sigma = eb sqrt 3, to be 0.01 / 2."""
    measured = LayerStatistics([torch.tensor(1.0), torch.tensor(2.0)], torch.tensor(0.5))
    assert error_bound(0.01, measured) == pytest.approx(0.005 / math.sqrt(3))
    for variance, gradient in ((0.0, 0.5), (4.0, 0.0), (math.inf, 0.5), (4.0, math.nan), (math.nan, 1.0)):
        assert error_bound(0.01, LayerStatistics([torch.tensor(variance)], torch.tensor(gradient))) is None
    assert error_bound(0.01, LayerStatistics([], torch.tensor(0.5))) is None
    assert error_bound(0.01, LayerStatistics([torch.tensor(4.0)])) is None


@pytest.mark.parametrize("name", ["conv", "cnn", "mlp"])
@pytest.mark.parametrize("error", [0.1, 0.01, 0.001])
def test_the_gradients_error_is_that_of_the_model(name: str, error: float) -> None:
    """That of weights behind the first layer; gradients of biases and of the first layer are exact, to the bit."""
    model = network(name)
    first = next(iter(dict(model.named_parameters())))
    for seed in range(3):
        exact, _ = gradients("", model, seed=seed)
        found, _ = gradients(f"activation_compression({error})", model, seed=seed)
        for each, measured in relative_errors(found, exact).items():
            if each == first or exact[each].dim() == 1:
                assert measured == 0, each
            else:
                assert 0.6 * error < measured < 1.4 * error, each


@pytest.mark.parametrize("state", [None, "kept"])
def test_no_entry_of_the_gradient_is_further_off_than_its_bound(state: str | None) -> None:
    """|error of dL/dw| <= eb sum |g|, over the samples, in a linear layer."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    seen: list[Tensor] = []

    def see(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
        output.register_hook(seen.append)  # type: ignore[no-untyped-call]

    model[3].register_forward_hook(see)
    exact, _ = gradients("", model)
    text = "activation_compression(error=0.2)"
    kept = {text: {"bounds": torch.tensor([0.0, 0.01, 0.0], dtype=torch.float64)}} if state else None
    found, after = gradients(text, model, state=kept, steps=1 if state else 2)
    bound = 0.01 if state else bounds(after)[1]
    off = (found["3.weight"] - exact["3.weight"]).abs()
    most = bound * seen[-1].abs().sum(0)[:, None]
    assert bool((off <= most * 1.0001).all())
    assert float(off.max()) > 0.05 * float(most.max()), "the bound is not a loose one"


def test_before_the_first_measurement_the_bound_is_a_quarter_of_that_for_independent_gradients() -> None:
    """Loss gradients of random signs: the factor is that of the model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 64))
    signs = torch.randn(BATCH, 64)

    def loss(outputs: Tensor, _y: Tensor) -> Tensor:
        return (outputs * signs).mean()

    exact, _ = gradients("", model, 1, loss)
    found, state = gradients("activation_compression(0.05)", model, 1, loss)
    assert relative_errors(found, exact)["3.weight"] == pytest.approx(0.05 / 4, rel=0.4)
    again, _ = gradients("activation_compression(0.05)", model, 1, loss, state)
    assert relative_errors(again, exact)["3.weight"] == pytest.approx(0.05, rel=0.4)


def test_the_first_step_of_a_round_uses_the_bounds_of_the_last_one() -> None:
    model, text = network("mlp"), "activation_compression(error=0.01)"
    exact, _ = gradients("", model)
    _, state = gradients(text, model)
    fine = {text: {"bounds": state[text]["bounds"] / 100}}
    errors = [relative_errors(gradients(text, model, 1, state=each)[0], exact)["3.weight"] for each in (state, fine)]
    assert errors[0] == pytest.approx(0.01, rel=0.4)
    assert errors[1] == pytest.approx(0.0001, rel=0.4)
    assert bounds(state)[0] == 0, "samples are not compressed"
    other_model = {text: {"bounds": torch.ones(7, dtype=torch.float64)}}
    assert relative_errors(gradients(text, model, 1, state=other_model)[0], exact)["3.weight"] < 0.02


def test_bounds_are_measured_in_the_first_step_and_after_each_interval() -> None:
    model = network("mlp")
    training = parse("activation_compression(interval=2)").begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen = [bounds(training.end())]
    for seed in range(4):
        training.step(optimizer, *images(seed), functional.cross_entropy)
        seen.append(bounds(training.end()))
    assert seen[0] == [0.0, 0.0]
    assert seen[1] == seen[2]
    assert seen[3] == seen[4]
    assert len({each[1] for each in seen}) == 3


def test_a_scale_of_the_loss_does_not_change_the_bounds() -> None:
    model = network("conv")
    plain = gradients("activation_compression()", model)[1]
    scaled = gradients("activation_compression()", model, loss=lambda x, y: 1024 * functional.cross_entropy(x, y))[1]
    assert bounds(scaled) == pytest.approx(bounds(plain))


def test_a_layer_that_gets_no_gradient_keeps_its_bound() -> None:
    model, text = network("mlp"), "activation_compression(error=0.01)"
    _, state = gradients(text, model)
    assert bounds(state)[1] > 0
    _, after = gradients(text, model, loss=lambda outputs, _: 0 * outputs.sum(), state=state)
    assert bounds(after) == bounds(state)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool1d(3, 2),
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool3d(2),
        nn.AvgPool1d(2),
        nn.AvgPool2d(3, 1),
        nn.AvgPool3d(2),
    ],
    ids=str,
)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_relu_and_pools_lose_nothing(pool: nn.Module, last: bool) -> None:
    """The last layer's input is below 1024 entries: all gradients are exact."""
    torch.manual_seed(0)
    dimensions = int(str(type(pool).__name__)[-2])
    convolution = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimensions](2, 6, 3, padding=1)
    model = nn.Sequential(convolution, pool, nn.ReLU(), nn.Flatten(), nn.LazyLinear(12), nn.ReLU(), nn.Linear(12, 10))
    x = torch.rand(4, 2, *(8 if dimensions > 1 else 300,) * dimensions)
    if last and dimensions > 1:
        x = x.to(memory_format=torch.channels_last if dimensions == 2 else torch.channels_last_3d)
    model(x)
    model[4].requires_grad_(False)  # its input needs no copy
    found: list[list[Tensor]] = []
    for text in ("", "activation_compression(0.5)"):
        training = parse(text).begin(model)
        training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, torch.arange(4), functional.cross_entropy)
        found.append([cast("Tensor", each.grad).clone() for each in model.parameters() if each.requires_grad])
    for mine, right in zip(*found, strict=True):
        assert torch.equal(mine, right)


def saved_at_the_loss(text: str, model: nn.Module) -> dict[str, bool]:
    """Return for each module by name whether its output is in memory when the loss is computed."""
    storages: dict[str, Any] = {}
    handles = [
        module.register_forward_hook(
            lambda module, inputs, output, name=name: storages.__setitem__(
                name,
                StorageWeakRef(output.untyped_storage()),  # type: ignore[no-untyped-call]
            )
        )
        for name, module in model.named_children()
    ]
    alive: dict[str, bool] = {}

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        alive.update({name: not storage.expired() for name, storage in storages.items()})
        return functional.cross_entropy(outputs, y)

    gradients(text, model, 1, loss)
    for handle in handles:
        handle.remove()
    return alive


def test_the_activations_are_free_in_the_backward_pass() -> None:
    """Only the outputs are there, which the loss function holds."""
    model = network("conv")
    assert sum(saved_at_the_loss("", model).values()) == 8
    assert [name for name, alive in saved_at_the_loss("activation_compression()", model).items() if alive] == ["10"]


def codes_in_memory() -> int:
    return sum(type(each) is Codes for each in gc.get_objects())


def test_the_backward_pass_frees_the_codes_of_the_layers_that_it_has_passed() -> None:
    """At the loss there are codes of four layers; when the first layer has its gradient, there are none."""
    model = network("conv")
    seen: list[int] = []

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        seen.append(codes_in_memory())
        return functional.cross_entropy(outputs, y)

    model.get_parameter("0.weight").register_hook(lambda _: seen.append(codes_in_memory()))  # type: ignore[no-untyped-call]
    gradients("activation_compression()", model, 1, loss)
    assert seen == [4, 0]


class Block(nn.Module):
    """Uses one activation in two layers, and one layer twice; ReLU, pooling and addition are functions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.left, self.right = (
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Conv2d(8, 8, 1),
            nn.Conv2d(8, 8, 3, padding=1),
        )
        self.last = nn.Linear(8 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(x))
        x = functional.relu(self.left(x) + self.right(x))
        x = functional.relu(self.left(x)) * x.sigmoid()
        return cast("Tensor", self.last(functional.max_pool2d(x, 2).flatten(1)))


def test_functions_and_layers_that_are_used_twice_fit_the_model() -> None:
    model = Block()
    exact, _ = gradients("", model)
    found, state = gradients("activation_compression(0.02)", model)
    errors = relative_errors(found, exact)
    for name in ("first.weight", "first.bias", "left.bias", "right.bias", "last.bias"):
        assert errors[name] == 0, name
    for name in ("left.weight", "right.weight", "last.weight"):
        assert 0.004 < errors[name] < 0.03, name
    assert min(bounds(state)[1:]) > 0


@pytest.mark.parametrize(
    "weights", ["quantized(4, activations=4)", "mixed_precision()", "fedprox(0.1)", "batch_augmentation(2)"]
)
def test_it_works_with_other_plug_ins_in_any_order(weights: str) -> None:
    """Their own gradients are those without it, to the bit, except for the weights of compressed layers."""
    exact, _ = gradients(weights, network("conv"))
    own = "activation_compression(0.05)"
    for text in (f"{weights} + {own}", f"{own} + {weights}"):
        found, _ = gradients(text, network("conv"))
        errors = relative_errors(found, exact)
        assert all(error == 0 for name, error in errors.items() if exact[name].dim() == 1 or name == "0.weight")
        assert all(
            0.01 < error < 0.075 for name, error in errors.items() if exact[name].dim() > 1 and name != "0.weight"
        )


class Fork(nn.Module):
    """Two layers on the same activation, one on every other entry of it, and one on the output of tanh."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.coarse, self.fine = nn.Linear(144, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.sliced, self.last = nn.Linear(32, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(x.flatten(1)))
        return cast("Tensor", self.last(torch.tanh(self.coarse(x) + self.fine(x) + self.sliced(x[:, ::2]))))


def test_the_finer_bound_of_two_layers_on_one_activation_holds_and_a_coarse_one_has_a_limit() -> None:
    """Bounds in the order of the layers; that of 100 becomes a quarter of the root mean square.  Others' inputs are exact."""
    model, text = Fork(), "activation_compression(error=0.01)"
    exact, _ = gradients("", model)
    kept = {text: {"bounds": torch.tensor([0.0, 100.0, 1e-4, 1.0, 1.0], dtype=torch.float64)}}
    errors = relative_errors(gradients(text, model, 1, state=kept)[0], exact)
    assert 0.05 < errors["coarse.weight"] < 1
    assert 0 < errors["fine.weight"] < 0.002
    assert errors["sliced.weight"] == 0, "a view with gaps"
    assert errors["last.weight"] == 0, "tanh keeps its output in any case"


def test_outputs_that_are_not_used_are_free_without_a_backward_pass() -> None:
    """What is saved of an operation's own output holds no reference to it."""
    model = nn.Sequential(network("mlp"), nn.Tanh())
    x = torch.rand(200, 1, 12, 12)
    outputs = parse("activation_compression()").begin(model).outputs(x)
    gone = weakref.ref(outputs)
    del outputs
    assert gone() is None


def test_nan_is_not_hidden() -> None:
    model = network("conv")
    with torch.no_grad():
        dict(model.named_parameters())["3.weight"][0, 0, 0, 0] = math.nan
    exact, _ = gradients("", model)
    found, _ = gradients("activation_compression()", model)
    for name, right in exact.items():
        assert torch.equal(found[name].isnan(), right.isnan())
    assert any(bool(each.isnan().any()) for each in exact.values())


def test_no_hook_is_left_after_a_round_or_an_error() -> None:
    model = network("conv")
    before = [set(vars(module)) for module in model.modules()]
    training = parse("activation_compression()").begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def fails(_outputs: Tensor, _y: Tensor) -> Tensor:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        training.step(optimizer, *images(), fails)
    training.end()
    assert [set(vars(module)) for module in model.modules()] == before
    assert not any(weight._backward_hooks for weight in model.parameters())  # noqa: SLF001 - torch shows them nowhere else
    training.step(optimizer, *images(), functional.cross_entropy)
    assert not any(weight._backward_hooks for weight in model.parameters())  # noqa: SLF001


def test_without_a_gradient_the_model_is_as_it_was() -> None:
    model, x = network("conv"), images()[0]
    training: LocalRound = parse("activation_compression()").begin(model)
    with torch.no_grad():
        assert torch.equal(training.outputs(x), model(x))
    assert bounds(training.end()) == [0.0] * 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("activation_compression(0)", "error is 0"),
        ("activation_compression(1.5)", "error is 1.5"),
        ("activation_compression('x')", "error is 'x'"),
        ("activation_compression(interval=0)", "interval is 0"),
        ("activation_compression(interval=2.5)", "interval is 2.5"),
    ],
)
def test_wrong_settings_are_refused(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=f"^{found}; [^\n]*$"):
        parse(text)


def test_a_model_without_such_layers_is_refused() -> None:
    for model in (nn.LSTM(3, 4), nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.LSTM(4, 4))):
        with pytest.raises(ValueError, match="the inputs of convolutions and linear layers; the model trains none"):
            parse("activation_compression()").begin(model)


class GeM(nn.AvgPool2d):
    """Generalized mean pooling (Radenovic, Tolias and Chum, PAMI 2019), as it is usually written."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.clamp(min=1e-6).pow(3)).pow(1 / 3)


def test_a_pool_with_a_forward_of_its_own_saves_what_it_needs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), GeM(2), nn.Flatten(), nn.Linear(96, 4))
    with_own = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 4))
    pool = with_own[1]
    pool.forward = lambda x: functional.avg_pool2d(x.pow(3), 2)
    for each in (model, with_own):
        found: list[list[Tensor]] = []
        for text in ("", "activation_compression(0.01)"):
            training = parse(text).begin(each)
            x = torch.rand(16, 2, 8, 8, generator=torch.Generator().manual_seed(1))
            training.step(torch.optim.SGD(each.parameters(), lr=0.0), x, torch.arange(16) % 4, functional.cross_entropy)
            found.append([cast("Tensor", weight.grad).clone() for weight in each.parameters()])
        for mine, right in zip(*found, strict=True):
            assert float((mine - right).norm() / right.norm()) < 0.02
