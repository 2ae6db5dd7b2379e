"""Ternary symbols to encode."""

from collections.abc import Callable

import numpy as np
import pytest

from fedcomp.quantized import Ternary

Draw = Callable[[np.random.Generator, int, int], Ternary]


@pytest.fixture
def draw() -> Draw:
    """Returns k independent positions of n, with random signs and magnitude."""

    def one(rng: np.random.Generator, n: int, k: int) -> Ternary:
        indices = np.sort(rng.choice(n, k, replace=False)).astype(np.int64)
        magnitude = np.float32(rng.uniform(0.1, 2) * 10.0 ** rng.integers(-40, 38))
        return Ternary(n, indices, rng.random(k) < 0.5, magnitude)

    return one
