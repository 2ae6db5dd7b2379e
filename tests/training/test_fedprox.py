"""FedProx: its penalty by hand, and its effect."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedcomp.training import fedprox, parse


def test_the_step_is_the_one_computed_by_hand() -> None:
    """Loss (w - 3)^2 from w = 1 with rate 1/4: w = 2; then the gradient is 2 (2 - 3) + mu (2 - 1)."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    training = fedprox(mu=0.5).begin(model)
    x, y = torch.ones(1, 1), torch.full((1, 1), 3.0)
    losses = [float(training.step(optimizer, x, y, functional.mse_loss)) for _ in range(2)]
    assert losses == [4.0, 1.0], "the loss that is reported has no penalty"
    assert model.weight.item() == 2 - 0.25 * (-2 + 0.5)
    assert training.end() == {}


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_the_weights_end_where_data_and_penalty_balance(mu: float) -> None:
    """Of (w - 3)^2 + mu/2 (w - 1)^2, that is (6 + mu) / (2 + mu)."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = fedprox(mu).begin(model)
    for _ in range(200):
        training.step(optimizer, torch.ones(1, 1), torch.full((1, 1), 3.0), functional.mse_loss)
    assert model.weight.item() == pytest.approx((6 + mu) / (2 + mu))


def test_both_parts_of_a_complex_weight_have_the_penalty() -> None:
    """Of |w - (3 + 4i)|^2 + mu/2 |w|^2 from w = 0, that is (6 + 8i) / (2 + mu)."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros((), dtype=torch.cfloat))
    model.forward = lambda x: torch.view_as_real(model.weight * x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = fedprox(mu=3.0).begin(model)
    for _ in range(100):
        training.step(optimizer, torch.ones(()), torch.tensor([3.0, 4.0]), lambda out, y: (out - y).square().sum())
    torch.testing.assert_close(model.weight.detach(), torch.tensor(1.2 + 1.6j))


def test_weights_that_do_not_train_have_no_penalty() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(requires_grad=False)
    training = fedprox(1.0).begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.step(optimizer, torch.ones(1, 2), torch.ones(1, 1), functional.mse_loss)
    assert all(weight.grad is None for weight in model[0].parameters())


@pytest.mark.parametrize("text", ["rigl(0.3) + fedprox(1000.0)", "fedprox(1000.0) + rigl(0.3)"])
def test_weights_that_another_plug_in_drops_have_no_penalty(text: str) -> None:
    """A lossy downlink has left weights outside the masks, which RigL sets to zero; nodes report the loss's gradients."""
    reports = []
    for plan in (parse(text), parse("rigl(0.3)")):
        torch.manual_seed(0)
        model = plan.prepare(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10)), seed=0)
        with torch.no_grad():
            model.get_parameter("2.weight").add_(torch.randn(10, 20))
        training = plan.begin(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        training.step(optimizer, torch.randn(8, 10), torch.randint(10, (8,)), functional.cross_entropy)
        reports.append(training.report())
    penalized, plain = reports
    assert plain["2.weight"].count_nonzero() > 0
    assert all(torch.equal(penalized[name], plain[name]) for name in plain)
