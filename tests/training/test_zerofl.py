"""ZeroFL: the sparse layers and the masks by hand, and the gradients that differ from dense ones."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.core import Vector
from fedcomp.methods import topk
from fedcomp.tasks import build_model
from fedcomp.training import Inference, parse, zerofl
from fedcomp.training.zerofl import largest

SGD = torch.optim.SGD


def layer(model: nn.Sequential, index: int = 1) -> nn.Linear | nn.Conv2d:
    chosen = model[index]
    assert isinstance(chosen, nn.Linear | nn.Conv2d)
    return chosen


def bias(model: nn.Sequential) -> Tensor:
    found = layer(model).bias
    assert found is not None
    return found.detach()


def two_layers(second: list[list[float]]) -> nn.Sequential:
    """Return a layer that passes its input on, and one of the given weights."""
    model = nn.Sequential(nn.Linear(len(second[0]), len(second[0]), bias=False), nn.Linear(len(second[0]), len(second)))
    with torch.no_grad():
        layer(model, 0).weight.copy_(torch.eye(len(second[0])))
        layer(model).weight.copy_(torch.tensor(second))
        bias(model).zero_()
    return model


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.25, [0, 0, -4, 0]), (0.3, [0, 3, -4, 0]), (0.5, [0, 3, -4, 0]), (0.0, [0, 0, -4, 0]), (1.0, [1, 3, -4, 2])],
)
def test_the_largest_entries_by_hand(ratio: float, expected: list[float]) -> None:
    assert largest(torch.tensor([1.0, 3.0, -4.0, 2.0]), ratio).tolist() == expected


def test_a_ratio_that_is_no_binary_fraction_keeps_the_number_that_it_says() -> None:
    assert [int((largest(torch.arange(1.0, 11.0), 1 - k / 10) != 0).sum()) for k in range(10)] == list(range(10, 0, -1))


def test_a_step_by_hand() -> None:
    """Half of four weights, and half of four inputs.

    w = (1, 3, -4, 2) is used as (0, 3, -4, 0); x = (1, 2, 1, 3) gives y = 6 - 4 = 2, and loss y^2 / 2 the gradient 2.
    Weights get 2 (0, 2, 0, 3), from the largest inputs, and the layer before gets 2 (0, 3, -4, 0), as the weights are used.
    """
    model = two_layers([[1.0, 3.0, -4.0, 2.0]])
    training = zerofl(sparsity=0.5, upload="full").begin(model)
    loss = training.step(
        SGD(model.parameters(), lr=1.0),
        torch.tensor([[1.0, 2, 1, 3]]),
        torch.zeros(1),
        lambda y, _: y.square().sum() / 2,
    )
    training.end()
    assert loss.item() == 2
    assert layer(model).weight.tolist() == [[1, -1, -4, -4]]
    assert bias(model).tolist() == [-2]
    x = torch.tensor([1.0, 2, 1, 3])
    torch.testing.assert_close(
        layer(model, 0).weight.detach(), torch.eye(4) - torch.outer(torch.tensor([0.0, 6, -8, 0]), x)
    )


@pytest.mark.parametrize(
    ("upload", "expected"),
    [
        ("full", [1.5, 3.0, -4.0, 2.25]),
        ("weights", [0, 3.0, -4.0, 0]),
        ("diff-on-weights", [1.0, 3.0, -4.0, 2.0]),  # the largest weights are those that did not change
        ("weights-diff", [1.5, 3.0, -4.0, 2.25]),
    ],
)
def test_what_goes_up_by_hand(upload: str, expected: list[float]) -> None:
    """Two of four: weights (1, 3, -4, 2) have become (1.5, 3, -4, 2.25)."""
    model = two_layers([[1.0, 3.0, -4.0, 2.0]])
    training = parse(f"zerofl(0.75, mask_ratio=0.25, upload={upload!r})").begin(model)
    training.step(SGD(model.parameters(), lr=0.0), torch.ones(1, 4), torch.zeros(1), lambda y, _: y.sum())
    with torch.no_grad():
        layer(model).weight.add_(torch.tensor([[0.5, 0, 0, 0.25]]))
        bias(model).add_(7)
    training.end()
    assert layer(model).weight.tolist() == [expected]
    assert bias(model).item() == 7


def trained(name: str, text: str, steps: int = 3) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a model after some steps, and its weights before."""
    generator = torch.Generator().manual_seed(1)
    model = build_model(name, (1, 8, 8), 4, 0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x, y = torch.rand(30, 1, 8, 8, generator=generator), torch.randint(4, (30,), generator=generator)
    training = parse(text).begin(model)
    for _ in range(steps):
        training.step(SGD(model.parameters(), lr=0.1, momentum=0.9), x, y, functional.cross_entropy)
    training.end()
    return model, before


@pytest.mark.parametrize("upload", ["diff-on-weights", "weights-diff"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "lora"])
def test_the_changes_of_a_matrix_are_as_many_as_the_mask_allows_and_the_uplink_sends_exactly_them(
    name: str, upload: str
) -> None:
    model, before = trained(name, f"zerofl(0.9, mask_ratio=0.1, upload={upload!r})")
    changes = {key: value - before[key] for key, value in model.state_dict().items()}
    for change in changes.values():
        allowed = -(-change.numel() // 5) if change.dim() > 1 else change.numel()
        assert 0 < int((change != 0).sum()) <= allowed
    vector: Vector = torch.cat([change.flatten() for change in changes.values()]).numpy()
    uplink = topk(density=1.0, feedback=False)
    body, _ = uplink.encode(vector, uplink.init(vector.size))
    assert (uplink.decode(body, vector.size) == vector).all()
    assert len(body) < 0.3 * vector.nbytes


@pytest.mark.parametrize("name", ["mlp", "cnn", "lora"])
def test_without_sparsity_training_is_that_without_the_plug_in(name: str) -> None:
    (sparse, _), (plain, _) = (trained(name, text) for text in ("zerofl(0, mask_ratio=0)", ""))
    for key, weight in sparse.state_dict().items():
        torch.testing.assert_close(weight, plain.state_dict()[key], rtol=1e-5, atol=1e-6)


def test_the_first_layer_is_dense_and_inference_uses_the_sparse_weights() -> None:
    model, _ = trained("cnn", "zerofl(0.9, upload='full')", steps=1)
    used = zerofl(0.9).inference(model)
    assert isinstance(used, Inference)
    nonzero = {key: float((value != 0).float().mean()) for key, value in used.tensors().items() if value.dim() > 1}
    first, *others = nonzero.values()
    assert first == 1
    assert others == pytest.approx([0.1] * len(others), abs=0.01)
    x = torch.rand(5, 1, 8, 8)
    assert not torch.allclose(used(x), model(x))
    plain = build_model("cnn", (1, 8, 8), 4, 0)
    plain.load_state_dict(used.tensors())
    assert torch.equal(used(x), plain(x))


@pytest.mark.parametrize("forward", [True, False])
def test_a_layer_that_is_called_before_the_dense_one_is_named_once(
    forward: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.two(self.one(x)) if forward else self.one(self.two(x))
            return outputs

    model = Model()
    for _ in range(2):
        training = zerofl(0.5).begin(model)
        for _ in range(2):
            training.step(SGD(model.parameters(), lr=0.1), torch.ones(1, 3), torch.zeros(1), lambda y, _: y.sum())
        training.end()
    assert [record.args for record in caplog.records] == ([] if forward else [("one", "two")])


@pytest.mark.parametrize("text", ["zerofl(0.9)", "zerofl(0.9) + mixed_precision()"])
def test_the_weight_gradient_of_a_convolution_comes_from_its_largest_inputs(text: str) -> None:
    """Also where autocast saves a 16-bit copy of the input; the sum of channels has the gradient 1 everywhere."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Conv2d(1, 2, 1, bias=False))
    with torch.no_grad():
        layer(model, 0).weight.fill_(1)
    x = torch.arange(1.0, 101.0).view(1, 1, 10, 10)
    training = parse(text).begin(model)
    optimizer = SGD(model.parameters(), lr=0.0)
    training.step(optimizer, x, torch.zeros(1), lambda y, _: y.sum())
    gradient = layer(model).weight.grad
    assert gradient is not None
    assert gradient.flatten().tolist() == pytest.approx([float(sum(range(91, 101)))] * 2, rel=0.01)


def test_a_forward_pass_that_fails_leaves_no_hooks() -> None:
    model = two_layers([[1.0, 2.0]])
    training = zerofl().begin(model)
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        training.step(optimizer, torch.ones(1, 3), torch.zeros(1), lambda y, _: y.sum())
    training.end()
    assert layer(model).weight.tolist() == [[1, 2]]
    x = torch.ones(1, 2, requires_grad=True)
    model(x).sum().backward()
    gradient = layer(model).weight.grad
    assert gradient is not None
    assert gradient.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("zerofl(1)", "sparsity is 1; it is below 1"),
        ("zerofl(-0.1)", "sparsity is -0.1; .* at most 1"),
        ("zerofl(mask_ratio=2)", "mask_ratio is 2; .* at most 1"),
        ("zerofl(upload='all')", "upload is 'all'; it is one of 'full', 'weights'"),
        (
            "zerofl() + activation_compression()",
            "zerofl and activation_compression each decide what autograd saves; one",
        ),
        ("zerofl() + quantized()", "zerofl and quantized each decide the weights .* one of them"),
    ],
)
def test_settings_that_are_not_possible_are_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(text)


@pytest.mark.parametrize("text", ["zerofl(0.5)", "activation_compression()", "quantized(8, activations=8)"])
def test_layers_with_named_inputs_are_trained(text: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(40, 40), nn.Linear(40, 40), nn.Linear(40, 3)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.third(input=torch.relu(self.second(torch.relu(self.first(x)))))
            return outputs

    model = Named()
    training = parse(text).begin(model)
    before = model.third.weight.detach().clone()
    training.step(
        SGD(model.parameters(), lr=0.1),
        torch.rand(50, 40),
        torch.zeros(50, dtype=torch.int64),
        functional.cross_entropy,
    )
    assert not torch.equal(model.third.weight, before)


@pytest.mark.parametrize("model", [nn.Linear(3, 3), build_model("lstm", (1, 8, 8), 4, 0)])
def test_a_model_without_a_second_layer_is_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="layers after the first one sparse; the model has none"):
        zerofl().begin(model)


def test_a_check_changes_no_weights() -> None:
    model = two_layers([[1.0, 3.0, -4.0, 2.0]])
    zerofl(upload="weights").check(model, torch.ones(1, 4), torch.zeros(1, dtype=torch.int64))
    assert layer(model).weight.tolist() == [[1, 3, -4, 2]]
