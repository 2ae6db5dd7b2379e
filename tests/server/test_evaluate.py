"""Central evaluation of the published model."""

import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedcomp.data import load, read_card
from server.evaluate import build_evaluator

CARDS = Path(__file__).resolve().parents[2] / "datasets"
DIGITS = load(read_card("digits", CARDS))


def test_a_model_of_zeros_has_the_loss_of_ten_equal_probabilities() -> None:
    evaluator = build_evaluator("logistic", DIGITS, seed=0, device_name="cpu")
    zeros = ArrayRecord({name: Array(np.zeros_like(a.numpy())) for name, a in evaluator.initial_arrays().items()})
    loss, accuracy = evaluator(zeros)
    assert loss == pytest.approx(math.log(10), rel=1e-6)
    assert accuracy == pytest.approx(float(np.mean(DIGITS.test.y == 0)))


def test_the_same_seed_gives_the_same_first_model() -> None:
    first, again, other = (build_evaluator("mlp", DIGITS, seed, "cpu").initial_arrays() for seed in (3, 3, 4))
    assert all(first[name].data == again[name].data for name in first)
    assert any(first[name].data != other[name].data for name in first)


@pytest.mark.parametrize(("name", "named"), [("vgg11s", "vgg11s .*32x32"), ("resnet", r"'resnet'; .*mlp")])
def test_a_model_that_does_not_fit_or_is_unknown_is_refused_before_the_first_round(name: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build_evaluator(name, DIGITS, seed=0, device_name="cpu")
