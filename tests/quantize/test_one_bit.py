"""One bit an entry, and the means of either side."""

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate, EncodeContext
from fedcomp.quantize import OneBit
from fedcomp.quantized import LINEAR


def test_entries_become_the_mean_of_their_side_and_zero_is_above() -> None:
    value = np.array([1, 3, -2, -6, 2, 0, 5, -4, -8, 0], np.float32)
    quantized = OneBit().quantize(
        CompensatedUpdate(value, context=EncodeContext(shapes=((4,), (2, 1), (), (0,), (2,), ())))
    )
    assert quantized.levels[:4].tolist() == [1, 1, 0, 0]
    assert (quantized.scale.kind, quantized.scale.count, quantized.groups) == (LINEAR, 2, (4, 2, 1, 2, 1))
    assert quantized.dense().tolist() == [2, 2, -4, -4, 1, 1, 5, -6, -6, 0]


def test_a_tensor_of_one_sign_has_one_value() -> None:
    for value in (np.array([1, 2, 6], np.float32), -np.array([1, 2, 6], np.float32)):
        quantized = OneBit().quantize(CompensatedUpdate(value))
        assert quantized.scales.tolist() == [0]
        assert quantized.dense().tolist() == [value.mean()] * 3


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_two_values_have_the_least_error(scale: float) -> None:
    value = (np.random.default_rng(0).standard_normal(3 * BLOCK_ENTRIES) * scale).astype(np.float32)
    value += np.float32(0.3 * scale)
    dense = OneBit().quantize(CompensatedUpdate(value)).dense()
    for side in (value >= 0, value < 0):
        assert np.unique(dense[side]).size == 1
        assert dense[side][0] == pytest.approx(value[side].mean(dtype=np.float64), rel=1e-6)


def test_the_ends_of_float32_are_their_own_means() -> None:
    for high, low in ((MAX_FLOAT32, -MAX_FLOAT32), (MAX_FLOAT32, 0.0), (2.0**-149, -(2.0**-149)), (2.0**-148, 0.0)):
        value = np.where(np.arange(100_000) % 3 == 0, high, low).astype(np.float32)
        found = OneBit().quantize(CompensatedUpdate(value)).dense()
        expected = np.where(value >= 0, value[value >= 0].mean(dtype=np.float64), low)
        assert np.allclose(found, expected, rtol=1e-6, atol=2.0**-149)
