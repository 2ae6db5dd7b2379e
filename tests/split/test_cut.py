"""Models are cut at a layer: both parts together are the model, and share its weights."""

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
    """Depends on its mode in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.first, self.last = how, nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.how == "dropout":
            x = functional.dropout(x, 0.5, training=self.training)
        elif self.how == "branch" and self.training:
            x = x * 2
        elif self.how == "constant":
            x = x + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return self.last(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("how", ["dropout", "branch"])
def test_a_model_that_reads_its_mode_is_refused(how: str, training: bool) -> None:
    with pytest.raises(ValueError, match=r"reads self\.training, which would be fixed in its two parts"):
        cut(Reads(how).train(training), "first")


def test_constants_are_no_hindrance() -> None:
    model, x = Reads("constant"), torch.randn(3, 4)
    lower, upper = cut(model, "first")
    assert torch.equal(upper(lower(x)), model(x))


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
