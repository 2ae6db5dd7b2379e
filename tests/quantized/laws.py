"""Laws of all quantized vectors."""

import numpy as np

from fedcomp.quantized import QuantizedVector


def check_adding(value: QuantizedVector) -> None:
    """Adding `value` is adding its dense vector: to the bit in float64, and in float32 with the weight -1."""
    start = np.random.default_rng(value.n).standard_normal(value.n)
    for weight in (1.0, -1.0, 0.3):
        whole = start.copy()
        value.add_to(whole, weight)
        assert np.array_equal(whole, start + weight * value.dense().astype(np.float64))
    small = start.astype(np.float32)
    value.add_to(small, -1.0)
    assert np.array_equal(small, start.astype(np.float32) - value.dense())
