"""Each test draws the same from the global generators, whatever ran before it."""

import random

import numpy as np
import pytest


@pytest.mark.every_case
@pytest.mark.parametrize("time", ["first", "second"])
def test_global_generators_start_anew_with_each_test(time: str) -> None:
    assert random.random() == random.Random(0).random()
    assert np.random.random_sample() == np.random.RandomState(0).random_sample()
    torch = pytest.importorskip("torch")
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(0)).item()
