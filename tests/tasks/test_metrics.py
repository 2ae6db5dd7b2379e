"""Loss and accuracy."""

import math

import pytest
import torch
from torch import Tensor, nn

from fedcomp.tasks.metrics import evaluate


def test_loss_and_accuracy_by_hand() -> None:
    # Logits (0, ln 3) give probabilities 1/4 and 3/4: the loss is ln 4 or ln 4/3.
    logits = torch.tensor([[0.0, math.log(3)]]).repeat(4, 1)
    loss, accuracy = evaluate(nn.Identity(), logits, torch.tensor([1, 1, 1, 0]), batch_size=3)
    assert accuracy == 0.75
    assert loss == pytest.approx((3 * math.log(4 / 3) + math.log(4)) / 4)


def test_the_batch_size_does_not_change_the_result() -> None:
    generator = torch.Generator().manual_seed(4)
    x, y = torch.randn(101, 5, generator=generator), torch.randint(0, 5, (101,), generator=generator)
    loss, accuracy = evaluate(nn.Identity(), x, y, batch_size=101)
    assert loss == pytest.approx(float(nn.functional.cross_entropy(x, y)))
    for batch_size in (1, 7, 100, 1000):
        assert evaluate(nn.Identity(), x, y, batch_size) == pytest.approx((loss, accuracy))


class Watch(nn.Module):
    """Records its mode, and fails on request."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.inner = nn.Dropout(0.5)
        self.fails = fails
        self.seen: list[tuple[bool, bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`."""
        self.seen.append((self.training, self.inner.training, torch.is_inference_mode_enabled()))
        if self.fails:
            raise RuntimeError("on request")
        return x


@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("fails", [False, True])
def test_it_runs_in_evaluation_mode_and_restores_the_mode_of_each_module(outer: bool, inner: bool, fails: bool) -> None:
    model = Watch(fails)
    model.training, model.inner.training = outer, inner
    try:
        evaluate(model, torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), batch_size=2)
    except RuntimeError:
        assert fails
    assert model.seen == [(False, False, True)]
    assert (model.training, model.inner.training) == (outer, inner)


@pytest.mark.parametrize(("samples", "labels", "batch_size"), [(0, 0, 1), (3, 2, 1), (2, 2, 0)])
def test_arguments_that_do_not_fit_are_refused(samples: int, labels: int, batch_size: int) -> None:
    x, y = torch.zeros(samples, 2), torch.zeros(labels, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"batch_size is {batch_size};|{samples} samples and {labels} labels;"):
        evaluate(nn.Identity(), x, y, batch_size)
