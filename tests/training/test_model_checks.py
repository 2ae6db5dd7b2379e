"""Models that do not fit a plug-in: each is refused in one sentence before the first step."""

import re
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

from fedcomp.training import parse, rigl, zerofl
from fedcomp.training.model_checks import check_weights_are_parameters


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 5))


def compiled_model() -> nn.Module:
    return cast("nn.Module", torch.compile(mlp(), backend="aot_eager"))


def compiled_in_place() -> nn.Module:
    model = mlp()
    model.compile(backend="aot_eager")
    return model


def compiled_part() -> nn.Module:
    model = mlp()
    model[2] = cast("nn.Module", torch.compile(model[2], backend="aot_eager"))
    return model


def compiled_forward() -> nn.Module:
    model = mlp()
    vars(model)["forward"] = torch.compile(model.forward, backend="aot_eager")
    return model


@pytest.mark.parametrize("plugin", ["activation_compression", "zerofl"])
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (compiled_model, "the model is compiled"),
        (compiled_in_place, "the model is compiled"),
        (compiled_part, "the module '2' is compiled"),
        (compiled_forward, "the model is compiled"),
    ],
)
def test_a_compiled_model_is_refused_by_those_that_change_what_is_saved(
    plugin: str, make: Callable[[], nn.Module], found: str
) -> None:
    with pytest.raises(ValueError, match=rf"^{plugin}\(\) [^\n]*{found}[^\n]*without torch.compile is needed$"):
        parse(f"{plugin}()").begin(make())


@torch.compile(backend="aot_eager")
def block(layer: nn.Module, x: Tensor) -> Tensor:
    return functional.relu(cast("Tensor", layer(x)))


def weight_norm(layer: nn.Linear) -> None:
    parametrizations.weight_norm(layer)


def spectral_norm(layer: nn.Linear) -> None:
    parametrizations.spectral_norm(layer)


def orthogonal(layer: nn.Linear) -> None:
    parametrizations.orthogonal(layer)


def old_spectral_norm(layer: nn.Linear) -> None:
    nn.utils.spectral_norm(layer)


def pruned(layer: nn.Linear) -> None:
    prune.random_unstructured(layer, "weight", 0.5)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("change", [weight_norm, spectral_norm, orthogonal, old_spectral_norm, pruned])
def test_a_weight_that_is_computed_is_named(change: Callable[[nn.Linear], None]) -> None:
    model = mlp()
    change(cast("nn.Linear", model[2]))
    with pytest.raises(ValueError, match=r"^plugin\(\) needs [^\n]*; 2.weight is computed [^\n]*$"):
        check_weights_are_parameters(model, "plugin")
    for each in model[2].parameters():
        each.requires_grad_(False)
    check_weights_are_parameters(model, "plugin")


def test_a_bias_that_is_computed_is_none_of_a_plug_ins_business() -> None:
    model = mlp()
    nn.utils.parametrize.register_parametrization(model[2], "bias", nn.Tanh())
    check_weights_are_parameters(model, "plugin")


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_rigl_names_an_embedding_with_sparse_gradients(kind: type[nn.Embedding] | type[nn.EmbeddingBag]) -> None:
    model = nn.Sequential(kind(30, 16, sparse=True), nn.Linear(16, 20))
    plan = rigl(0.3)
    with pytest.raises(ValueError, match=r"^rigl\(\) needs dense gradients; 0.weight has sparse ones[^\n]*$"):
        plan.begin(plan.prepare(model, 0))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("text", ["quantized()", "low_precision()", "zerofl(0.5)"])
def test_a_bound_of_rows_that_would_not_reach_the_trained_weight_is_refused(
    text: str, kind: type[nn.Embedding] | type[nn.EmbeddingBag]
) -> None:
    model = nn.Sequential(kind(8, 8, max_norm=1.5), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    if text == "zerofl(0.5)":
        parse(text).begin(model)  # leaves embeddings as they are, unless a layer shares their weight
        cast("nn.Linear", model[2]).weight = cast("nn.Embedding", model[0]).weight
    with pytest.raises(
        ValueError, match=r"^[a-z_]+\(\) [^\n]*0\.weight has max_norm=1\.5[^\n]*without max_norm is needed$"
    ):
        parse(text).begin(model)
    model[0].requires_grad_(requires_grad=False)
    parse(text).begin(model)


@pytest.mark.parametrize("text", ["fedprox(0.1)", "rigl(0.3)", "quantized()", "mixed_precision()"])
def test_weights_without_a_shape_are_named(text: str) -> None:
    model, plan = nn.Sequential(nn.LazyLinear(5)), parse(text)
    with pytest.raises(ValueError, match="^0.weight has no shape yet; call the model once"):
        plan.begin(plan.prepare(model, 0))
    model(torch.ones(2, 30))
    plan.begin(plan.prepare(model, 0))


@pytest.mark.parametrize("text", ["", "fedprox()", "mixed_precision()", "batch_augmentation()", "admm()"])
def test_a_model_that_trains_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("the model has no weights to train: none has requires_grad")):
        parse(text).begin(mlp().requires_grad_(False))


def test_inference_says_that_frozen_weights_stay_as_they_are() -> None:
    model = mlp().requires_grad_(False)
    with pytest.raises(
        ValueError, match=r"^inference\(\) [^\n]* requires_grad; call it before the weights are frozen$"
    ):
        parse("quantized(4)").inference(model)
    assert parse("fedprox()").inference(model) is model


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # of the compiler
def test_a_layer_that_a_compiled_function_calls_is_called_as_it_is() -> None:
    """Such a function is not part of the model, so `begin` does not see it; the weights are those of ordinary training."""

    class Model(nn.Module):
        def __init__(self, compiled: bool) -> None:
            super().__init__()
            self.layers, self.compiled = mlp(), compiled

        def forward(self, x: Tensor) -> Tensor:
            first, _, second, _, third = self.layers
            x = functional.relu(first(x))
            x = block(second, x) if self.compiled else functional.relu(second(x))
            return cast("Tensor", third(x))

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(64, 40, generator=generator), torch.randint(5, (64,), generator=generator)
    trained: list[Tensor] = []
    for compiled in (False, True):
        model = Model(compiled)
        training = zerofl(0.8).begin(model)
        for _ in range(3):
            training.step(torch.optim.SGD(model.parameters(), lr=0.1), x, y, functional.cross_entropy)
        trained.append(model.get_parameter("layers.2.weight").detach())
    assert torch.equal(*trained)
