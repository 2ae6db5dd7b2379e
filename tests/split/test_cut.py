"""Models are cut at a layer: both parts together are the model, and share its weights."""

import copy
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.split import cut, layout_of_part
from fedcomp.split.bounds import norm_of
from fedcomp.split.modes import fixed_modules, restored_modes, set_training
from fedcomp.tasks import build_model

CUTS = [
    ("mlp", (1, 8, 8), "2"),
    ("cnn", (1, 8, 8), "2"),
    ("cnn", (1, 8, 8), "5"),
    ("cnn", (1, 8, 8), "6"),
    ("kws_cnn", (1, 32, 32), "5"),
    ("vgg11s", (3, 32, 32), "2"),
    ("lora", (1, 8, 8), "1"),
    ("lstm", (1, 8, 8), "lstm"),
    ("char_lstm", (1, 1, 20), "embedding"),
    ("char_lstm", (1, 1, 20), "lstm"),
]


@pytest.mark.parametrize(("name", "shape", "layer"), CUTS)
def test_the_parts_of_a_model_are_the_model(name: str, shape: tuple[int, int, int], layer: str) -> None:
    model = build_model(name, shape, 10, seed=1)
    x = 9 * torch.rand((3, *shape), generator=torch.Generator().manual_seed(2))
    lower, upper = cut(model, layer)
    torch.testing.assert_close(upper(lower(x)), model(x), rtol=0, atol=0)
    assert list(lower.state_dict()) + list(upper.state_dict()) == list(model.state_dict())
    weights = dict(model.named_parameters())
    assert all(weight is weights[key] for part in (lower, upper) for key, weight in part.named_parameters())


def test_the_last_state_of_an_lstm_is_chosen_on_the_node() -> None:
    lower, _ = cut(build_model("lstm", (1, 8, 8), 10, seed=1), "lstm")
    assert lower(torch.ones(3, 1, 8, 8)).shape == (3, 128)


class Residual(nn.Module):
    """A block in the middle, inside of which nothing can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x + self.inner(x)
        outputs: Tensor = self.last(self.block(self.block(x)))
        return outputs


@pytest.mark.parametrize(("layer", "below"), [("first", ["first"]), ("inner", ["first", "inner"])])
def test_a_block_is_cut_before_it_or_behind_its_sum(layer: str, below: list[str]) -> None:
    model = Residual()
    lower, upper = cut(model, layer)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(upper(lower(x)), model(x))
    assert list(lower.state_dict()) == [f"{name}.{part}" for name in below for part in ("weight", "bias")]


class Branching(nn.Module):
    """Its `forward` depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x) if x.sum() > 0 else self.layer(-x)
        return outputs


class Tied(nn.Module):
    """Its layers are two that share a weight, as embeddings and outputs of language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.first(x).relu())
        return outputs


SHARED = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("model", "layer", "message"),
    [
        (nn.Sequential(nn.Linear(4, 2)), "conv", "the model has no layer 'conv'; its layers are '0'"),
        (nn.Sequential(nn.Linear(4, 2)), "", "the model has no layer ''"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), "1", "no trained weights are above the cut behind '1'"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "0", "no trained weights are below the cut behind '0'"),
        (Residual(), "block", "calls the layer 'block' 2 times; once is needed"),
        (Branching(), "layer", "cannot be traced"),
        (Tied(), "first", "last.weight is on both sides of the cut"),
        (nn.Sequential(SHARED, nn.ReLU(), SHARED, nn.Linear(4, 2)), "1", "0.weight is on both sides of the cut"),
    ],
)
def test_a_cut_that_is_not_possible_is_refused_in_one_sentence(model: nn.Module, layer: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        cut(model, layer)
    assert "\n" not in str(error.value)


def test_a_cut_with_two_tensors_is_refused() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)
            self.last = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            outputs: Tensor = self.last(x + self.norm(self.inner(x)))
            return outputs

    with pytest.raises(ValueError, match="behind the layer 'inner', 'first', 'inner' crosses the cut"):
        cut(Skip(), "inner")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_a_lower_part_whose_weights_no_node_can_train_is_refused(dtype: torch.dtype) -> None:
    part = nn.Module()
    part.spectral = nn.Parameter(torch.ones(2, dtype=dtype))
    with pytest.raises(ValueError, match=f"spectral is {str(dtype).removeprefix('torch.')}"):
        layout_of_part(part)


def test_the_norm_of_complex_gradients_counts_both_parts() -> None:
    assert norm_of([torch.tensor([3 + 4j]), torch.tensor([12.0])]) == 13


class Reads(nn.Module):
    """Two layers, with what `between` returns between them."""

    count: Tensor

    def __init__(self, between: Callable[["Reads", Tensor], Tensor]) -> None:
        super().__init__()
        self.between, self.first, self.last = between, nn.Linear(4, 4), nn.Linear(4, 2)
        self.generator, self.calls, self.plain = torch.Generator(), 0, torch.zeros(4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(x)))  # type: ignore[no-any-return]


def count_calls(model: Reads, x: Tensor) -> Tensor:
    model.calls += 1
    return x * model.calls


def assign(model: Reads, x: Tensor) -> Tensor:
    model.count = model.count + 1
    return x * model.count


def replace(model: Reads, x: Tensor) -> Tensor:
    model.count = torch.ones(())
    return x * model.count


def without_gradient(_: Reads, x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


def skip_at_random(_: Reads, x: Tensor) -> Tensor:
    return x if torch.rand(()) < 1e-9 else x * 2


MODE, EACH = r"reads self\.training, which would be fixed in its two parts", "computes something new in each call"
REFUSED: dict[str, tuple[Callable[[Reads, Tensor], Tensor], str]] = {
    "dropout": (lambda model, x: functional.dropout(x, 0.5, training=model.training), MODE),
    "branch": (lambda model, x: x * 2 if model.training else x, MODE),
    "constant of the mode": (lambda model, x: x * torch.tensor(1.0 if model.training else 5.0), MODE),
    "random constant": (lambda _, x: x + torch.randn(4), EACH),
    "random branch": (skip_at_random, EACH),
    "own generator": (lambda model, x: x + torch.randn(4, generator=model.generator), EACH),
    "random number": (lambda _, x: x * random.random(), EACH),
    "calls": (count_calls, EACH),
    "plain tensor": (lambda model, x: x + model.plain.add_(1), EACH),
    "assigned buffer": (assign, "assigns the buffer 'count'"),
    "replaced buffer": (replace, "assigns the buffer 'count'"),
    "no_grad": (without_gradient, r"it uses torch\.no_grad\(\)"),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("how", REFUSED)
def test_what_would_be_fixed_in_the_parts_is_refused_and_the_model_is_as_it_was(how: str, training: bool) -> None:
    between, message = REFUSED[how]
    model, before = Reads(between).train(training), torch.get_rng_state()
    attributes, count = dict(vars(model)), model.count
    with pytest.raises(ValueError, match=message) as error:
        cut(model, "first")
    assert "\n" not in str(error.value)
    assert torch.equal(torch.get_rng_state(), before)
    assert vars(model) == attributes
    assert model.count is count


@pytest.mark.parametrize("between", [lambda _, x: x + torch.tensor([1.0, 2.0, float("nan"), 4.0]), lambda _, x: x])
def test_constants_are_no_hindrance(between: Callable[[Reads, Tensor], Tensor]) -> None:
    model, x = Reads(between), torch.randn(3, 4)
    attributes = dict(vars(model))
    with torch.no_grad():
        lower, upper = cut(model, "first")
        torch.testing.assert_close(upper(lower(x)), model(x), rtol=0, atol=0, equal_nan=True)
    assert vars(model) == attributes


class Buffered(nn.Module):
    """Reads and changes buffers of its own: `mean` below the cut behind `first`, and `scale` and `average` above."""

    mean: Tensor
    scale: Tensor
    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("average", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale
        x = self.first(x - self.mean.view(1, -1))
        self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.last(x - self.average) * scale.clamp(min=0.1)  # type: ignore[no-any-return]


def test_each_part_has_the_buffers_that_it_reads() -> None:
    """They are those of the model: a later value counts, and a change in place reaches it."""
    model, x = Buffered(), torch.randn(5, 4)
    before = copy.deepcopy(model)
    lower, upper = cut(model, "first")
    assert torch.equal(model.average, before.average)
    assert [name for part in (lower, upper) for name, _ in part.named_buffers()] == ["mean", "scale", "average"]
    assert lower.state_dict().keys() | upper.state_dict().keys() == model.state_dict().keys()
    for each in (model, before):
        each.mean.fill_(3.0)
        each.scale.fill_(2.0)
    assert torch.equal(upper(lower(x)), before(x))
    assert torch.equal(model.average, before.average)
    assert model.average.abs().sum() > 0


@pytest.mark.parametrize("training", [True, False])
def test_all_modules_keep_their_modes(training: bool) -> None:
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
    )
    model.train(training)[1].train(not training)
    before = [module.training for module in model.modules()]
    parts = cut(model, "2")
    assert [module.training for module in model.modules()] == before
    assert [part.training for part in parts] == [training, training]


def test_a_trained_module_in_a_container_in_evaluation_mode_stays_trained() -> None:
    inner = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout())
    part = nn.Sequential(inner, nn.Linear(4, 4))
    inner.eval()[1].train()
    fixed = fixed_modules(part)
    with restored_modes(part):
        part.eval()
    modes = [module.training for module in part.modules()]
    assert modes == [True, False, False, True, True]
    part.eval()
    set_training(part, fixed)
    assert [module.training for module in part.modules()] == modes


def test_the_modes_are_restored_by_the_modules_own_method() -> None:
    """As a layer of low rank merges its weights when it is evaluated, and takes them apart when it trains."""

    class Merging(nn.Linear):
        merged = False

        def train(self, mode: bool = True) -> "Merging":
            super().train(mode)
            self.merged = not mode
            return self

    part = nn.Sequential(Merging(2, 2))
    with restored_modes(part):
        part.eval()
    assert not part[0].merged
