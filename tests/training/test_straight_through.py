"""The weights that plug-ins change, and their gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedcomp.training import parse
from fedcomp.training.straight_through import matrices, straight_through

CHANGING = ["quantized()", "quantized(2)", "quantized('ternary')", "admm()", "rigl(0.3)", "low_precision()"]


def test_the_values_are_those_to_use_and_the_gradient_is_that_of_the_latent_ones() -> None:
    latent, used = torch.tensor([0.1, -3.0], requires_grad=True), torch.tensor([1.0, -1.0])
    result = straight_through(latent, used)
    (result * torch.tensor([2.0, 5.0])).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(result, used)
    assert latent.grad is not None
    assert latent.grad.tolist() == [2, 5]


def test_matrices_are_the_weights_of_layers_and_embeddings() -> None:
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(5, 3),
            "conv": nn.Conv1d(2, 3, 3),
            "lstm": nn.LSTM(3, 2),
            "attention": nn.MultiheadAttention(4, 2),
            "norm": nn.LayerNorm([4, 2]),
            "rms": nn.RMSNorm([4, 2]),
            "batch": nn.BatchNorm1d(3),
            "empty": nn.Bilinear(2, 2, 1),
        }
    )
    model["empty"].register_parameter("weight", nn.Parameter(torch.zeros(0, 4)))
    model["conv"].requires_grad_(requires_grad=False)
    assert matrices(model, "admm") == [
        "embedding.weight",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
    ]


def test_vectors_with_further_axes_of_length_one_are_no_matrices_unless_a_layer_has_them() -> None:
    model = nn.ModuleDict(
        {
            "narrow": nn.Linear(1, 8),
            "single": nn.Linear(1, 1),
            "pointwise": nn.Conv2d(1, 8, 1),
            "embedding": nn.Embedding(9, 1),
            "cell": nn.GRUCell(1, 1),
            "attention": nn.MultiheadAttention(4, 2, add_bias_kv=True),
        }
    )
    for name, shape in {"token": (1, 1, 32), "scale": (32, 1, 1), "number": (1, 1), "positions": (1, 6, 32)}.items():
        model.register_parameter(name, nn.Parameter(torch.zeros(shape)))
    assert matrices(model, "admm") == [
        "positions",
        "narrow.weight",
        "single.weight",
        "pointwise.weight",
        "embedding.weight",
        "cell.weight_ih",
        "cell.weight_hh",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
    ]


@pytest.mark.parametrize("text", CHANGING)
def test_normalization_and_weights_without_entries_stay_as_they_are(text: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Unflatten(1, (4, 2)), nn.LayerNorm([4, 2]), nn.Flatten(), nn.Linear(8, 4))
    model.register_parameter("none", nn.Parameter(torch.zeros(0, 4)))
    nn.init.uniform_(model.get_parameter("1.weight"))
    gains = model.get_parameter("1.weight").detach().clone()
    plan = parse(text)
    training = plan.begin(plan.prepare(model, seed=0))
    assert torch.equal(training.weights()["1.weight"], gains)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    training.step(optimizer, torch.randn(5, 8), torch.randint(4, (5,)), functional.cross_entropy)
    training.end()
    assert torch.equal(model.get_parameter("1.weight"), gains)
    assert torch.equal(plan.inference(model)(torch.zeros(1, 8)), plan.inference(model)(torch.ones(1, 8)))
