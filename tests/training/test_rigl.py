"""RigL on a node: densities and steps by hand, weights that stay in their masks, and what the server is told."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.tasks import build_model
from fedcomp.training import Inference, parse, rigl
from fedcomp.training.rigl import densities, unpacked
from fedcomp.wire import MASK

SGD = torch.optim.SGD


def masked(weight: list[list[float]], mask: list[int]) -> nn.Linear:
    """Return a linear layer of these weights, with a mask of these bits."""
    layer = nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
    layer.register_buffer("weight_mask", torch.from_numpy(np.packbits(np.array(mask, np.bool_))))
    return layer


def nonzeros(model: nn.Module) -> dict[str, int]:
    return {name: int((weight != 0).sum()) for name, weight in model.named_parameters() if weight.dim() > 1}


@pytest.mark.parametrize(
    ("layers", "density", "expected"),
    [
        # 10 x 10 and 40 x 10: e (20 / 100) 100 + e (50 / 400) 400 = 70 e = 100, so e = 10 / 7
        ("erk", 0.2, [2 / 7, 1.25 / 7]),
        # e = 350 / 70 = 5 makes the first one dense; the other has the 250 that are left of its 400
        ("erk", 0.7, [1, 0.625]),
        ("erk", 1.0, [1, 1]),
        ("uniform", 0.2, [1, 0.2]),
    ],
)
def test_densities_by_hand(layers: str, density: float, expected: list[float]) -> None:
    found = densities({"a": (10, 10), "b": (40, 10)}, density, layers)
    assert list(found.values()) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_under_erk_the_density_is_that_of_all_weights_and_none_is_above_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = {str(number): tuple(map(int, rng.integers(1, 30, rng.integers(2, 5)))) for number in range(6)}
    density = float(rng.uniform(0.01, 1))
    found = densities(shapes, density, "erk")
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    assert sum(found[name] * sizes[name] for name in shapes) == pytest.approx(density * sum(sizes.values()))
    assert max(found.values()) <= 1 + 1e-9
    sparse = [found[name] / (sum(shapes[name]) / sizes[name]) for name in shapes if found[name] < 1 - 1e-9]
    assert sparse == pytest.approx([sparse[0]] * len(sparse)) if sparse else True


@pytest.mark.parametrize("name", ["mlp", "cnn", "lora", "lstm"])
def test_a_prepared_model_has_the_density_and_is_the_same_for_the_same_seed(name: str) -> None:
    first, again, other = (rigl(0.2).prepare(build_model(name, (1, 8, 8), 4, 0), seed) for seed in (1, 1, 2))
    weights = sum(weight.numel() for weight in first.parameters() if weight.dim() > 1)
    count = sum(int(unpacked(buffer, first.get_parameter(key.removesuffix(MASK))).sum())
                for key, buffer in first.named_buffers() if key.endswith(MASK))  # fmt: skip
    dense = sum(weight.numel() for key, weight in first.named_parameters() if weight.dim() > 1
                and key + MASK not in dict(first.named_buffers()))  # fmt: skip
    assert count + dense == pytest.approx(0.2 * weights, abs=3)
    states = [model.state_dict() for model in (first, again, other)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert any(not torch.equal(states[0][key], states[2][key]) for key in states[0])
    for key, weight in states[0].items():
        if key + MASK in states[0]:
            assert not weight[~unpacked(states[0][key + MASK], weight)].any()


def test_what_is_left_of_the_weights_keeps_the_variance_of_outputs() -> None:
    dense = build_model("mlp", (1, 8, 8), 4, 0)
    sparse = rigl(0.2).prepare(build_model("mlp", (1, 8, 8), 4, 0), 0)
    x = torch.randn(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    ratio = sparse(x).std().item() / dense(x).std().item()
    assert 0.8 < ratio < 1.25
    for name, weight in sparse.named_parameters():
        if name + MASK in sparse.state_dict():
            mask = unpacked(sparse.get_buffer(name + MASK), weight)
            scale = (weight.numel() / int(mask.sum())) ** 0.5
            torch.testing.assert_close(weight[mask], dense.get_parameter(name)[mask] * scale)


def test_a_step_by_hand() -> None:
    """w = (1, 2, 3, 4) has the mask 1010, so it is (1, 0, 3, 0); x = (1, 2, 3, 5) and loss y have the gradient x.

    With rate 0.1 the weights become (0.9, 0, 2.7, 0).  Two weights inside report one outside, ceil(0.5 * 2): the last, 5.
    """
    model = masked([[1.0, 2, 3, 4]], [1, 0, 1, 0])
    training = rigl(0.5, candidates=0.5).begin(model)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = training.step(optimizer, torch.tensor([[1.0, 2, 3, 5]]), torch.zeros(1), lambda y, _: y.sum())
    assert loss.item() == 10
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[0.9, 0, 2.7, 0]]))
    report = training.report()
    assert {name: tensor.tolist() for name, tensor in report.items()} == {"weight": [[0, 0, 0, 5]]}
    training.step(optimizer, torch.tensor([[1.0, 20, 3, 5]]), torch.zeros(1), lambda y, _: y.sum())
    assert training.report()["weight"].tolist() == [[0, 11, 0, 0]], "the mean of the steps"
    assert training.end() == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rigl(0.5, candidates=0.1)", [0, 0, 0, 5]),
        ("rigl(0.5, candidates='all')", [0, 2, 0, 5]),
        ("rigl(0.5, candidates=0.1, regrow=True)", [7, 0, 0, 5]),
        ("rigl(0.5, candidates=1.0, regrow=True)", [7, 2, 3, 5]),
        ("rigl(0.5, candidates='all', regrow=True)", [7, 2, 3, 5]),
    ],
)
def test_what_is_reported_by_hand(text: str, expected: list[float]) -> None:
    """Weights 1 and 3 are inside; the smaller one is 1.  The gradients are (7, 2, 3, 5)."""
    model = masked([[1.0, 2, 3, 4]], [1, 0, 1, 0])
    training = parse(text).begin(model)
    training.step(SGD(model.parameters(), lr=0.0), torch.tensor([[7.0, 2, 3, 5]]), torch.zeros(1), lambda y, _: y.sum())
    assert training.report()["weight"].tolist() == [expected]


def test_a_weight_outside_the_mask_stays_zero_whatever_momentum_it_had_and_a_step_that_overflows_is_not_reported() -> (
    None
):
    model = masked([[1.0, 2, 3, 4]], [1, 0, 1, 0])
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[model.weight]["momentum_buffer"] = torch.full((1, 4), 10.0)
    training = rigl(0.5, candidates=1.0).begin(model)
    training.step(optimizer, torch.tensor([[1.0, 2, 3, 5]]), torch.zeros(1), lambda y, _: y.sum())
    assert (model.weight[0, 1].item(), model.weight[0, 3].item()) == (0, 0)
    assert optimizer.state[model.weight]["momentum_buffer"].tolist() == [[10, 9, 12, 9]]
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0, 1, 0]]))
    training.step(
        SGD(model.parameters(), lr=0.0),
        torch.tensor([[1.0, 2, 3, 5]]),
        torch.zeros(1),
        lambda y, _: y.sum() * 1e38 * 1e3,
    )
    assert (model.weight[0, 1].item(), model.weight[0, 3].item()) == (0, 0)
    report = training.report()["weight"]
    assert torch.isfinite(report).all()
    assert report.flatten()[[1, 3]].tolist() == [1, 2.5], "the mean of a finite step and one without"


@pytest.mark.parametrize("text", ["rigl(1.0)", "rigl(0.1, layers='uniform')"])
def test_a_density_that_makes_no_matrix_sparse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no weight matrix of this model becomes sparse"):
        parse(text).prepare(build_model("logistic", (1, 8, 8), 4, 0), 0)


def test_a_model_that_has_masks_keeps_them() -> None:
    model = rigl(0.2).prepare(build_model("mlp", (1, 8, 8), 4, 0), 0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rigl(0.5).prepare(model, 3)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in before.items())


class Causal(nn.Sequential):
    """Two layers, and a buffer of the user's own whose name ends as that of a mask."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        self.register_buffer("causal_mask", torch.ones(32))


def test_a_buffer_of_the_users_own_that_is_called_a_mask_is_none() -> None:
    model, plain = rigl(0.3).prepare(Causal(), seed=1), rigl(0.3).prepare(nn.Sequential(*Causal().children()), seed=1)
    assert model.state_dict().keys() - plain.state_dict().keys() == {"causal_mask"}
    assert nonzeros(model) == nonzeros(plain)
    rigl(0.3).begin(model)


@pytest.mark.parametrize("taken", [torch.ones(32, 8), torch.ones(31, dtype=torch.uint8), nn.Parameter(torch.ones(32))])
@pytest.mark.parametrize(("place", "size"), [("0", 32), ("2", 16)])
def test_a_mask_whose_name_is_taken_is_refused_with_its_size(place: str, size: int, taken: Tensor) -> None:
    model = Causal()
    layer = model.get_submodule(place)
    if isinstance(taken, nn.Parameter):
        layer.register_parameter("weight_mask", taken)
    else:
        layer.register_buffer("weight_mask", taken)
    for use in (lambda: rigl(0.3).prepare(model, seed=1), lambda: rigl(0.3).begin(model)):
        with pytest.raises(ValueError, match=rf"^[^\n]*a {place}\.weight_mask [^\n]*uint8[^\n]*\({size},\)[^\n]*$"):
            use()


def trained(name: str, text: str, steps: int = 4) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    plan = parse(text)
    model = plan.prepare(build_model(name, (1, 8, 8), 4, 0), 0)
    x, y = torch.rand(30, 1, 8, 8, generator=generator), torch.randint(4, (30,), generator=generator)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    training = plan.begin(model)
    for _ in range(steps):
        training.step(optimizer, x, y, functional.cross_entropy)
    training.end()
    return model


@pytest.mark.parametrize("name", ["mlp", "cnn", "lora", "lstm"])
@pytest.mark.parametrize(
    "text", ["rigl(0.1)", "rigl(0.1, layers='uniform')", "rigl(0.1) + fedprox(0.1) + mixed_precision()"]
)
def test_training_stays_in_the_masks(name: str, text: str) -> None:
    model = trained(name, text)
    buffers = dict(model.named_buffers())
    for key, weight in model.named_parameters():
        if key + MASK in buffers:
            mask = unpacked(buffers[key + MASK], weight)
            assert not weight[~mask].any()
            assert weight[mask].any()


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_with_all_weights_training_is_that_without_the_plug_in(name: str) -> None:
    """A dense weight has no mask, so one is put there by hand."""
    plain = trained(name, "")
    model = build_model(name, (1, 8, 8), 4, 0)
    layer = next(each for each in model.modules() if isinstance(each, nn.Linear | nn.Conv2d))
    layer.register_buffer("weight_mask", torch.full((-(-layer.weight.numel() // 8),), 255, dtype=torch.uint8))
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(30, 1, 8, 8, generator=generator), torch.randint(4, (30,), generator=generator)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    training = rigl().begin(model)
    for _ in range(4):
        training.step(optimizer, x, y, functional.cross_entropy)
    for key, weight in plain.named_parameters():
        assert torch.equal(weight, model.get_parameter(key))


def test_inference_leaves_out_what_is_outside_the_masks_of_now() -> None:
    model = masked([[1.0, 2, 3, 4]], [1, 0, 1, 0])
    used = rigl().inference(model)
    x = torch.tensor([[1.0, 10, 100, 1000]])
    assert used(x).item() == 301
    assert model.weight.tolist() == [[1, 2, 3, 4]]
    model.load_state_dict(
        {"weight": torch.tensor([[5.0, 6, 7, 8]]), "weight_mask": torch.tensor([0b01010000], dtype=torch.uint8)}
    )
    assert used(x).item() == 8060
    assert isinstance(used, Inference)
    assert used.tensors()["weight"].tolist() == [[0, 6, 0, 8]]


def test_a_model_without_masks_is_refused_and_so_is_one_without_matrices() -> None:
    training = rigl().begin
    with pytest.raises(ValueError, match=r"needs a model with masks; Plan.prepare"):
        training(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="at least two dimensions; the model has none"):
        rigl().prepare(nn.BatchNorm1d(3), 0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rigl(0)", "density is 0; .* above 0"),
        ("rigl(1.5)", "density is 1.5; .* at most 1"),
        ("rigl(layers='all')", "layers is 'all'; it is one of 'erk', 'uniform'"),
        ("rigl(candidates=0)", "candidates is 0"),
        ("rigl(candidates='none')", "candidates is 'none'; it is one of 'all'"),
        ("rigl(regrow=1)", "regrow is 1"),
        ("rigl() + quantized()", "rigl and quantized each decide"),
    ],
)
def test_settings_out_of_range_are_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(text)


def test_a_model_that_no_plug_in_changes_is_prepared_as_it_is() -> None:
    model = nn.Linear(2, 2)
    before: list[Tensor] = [weight.clone() for weight in model.parameters()]
    assert parse("fedprox() + quantized()").prepare(model, 3) is model
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert not list(model.buffers())
