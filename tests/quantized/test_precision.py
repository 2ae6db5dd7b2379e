"""Rounding to formats of two bytes: by hand, to the nearest, never to infinity."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, Vector
from fedcomp.quantized import half_exponent, max_magnitude, round_to


def floats(*values: float) -> Vector:
    return np.array(values, np.float32)


def slow_rounded(value: float, step: float) -> float:
    """Return the multiple of `step` next to `value`, the even one of two: exact, the quotient of powers of two."""
    return round(value / step) * step


def bit_length_of(value: float) -> int:
    return int(np.floor(np.log2(abs(value))))


def random_floats(count: int, seed: int) -> Vector:
    """Return values of every exponent but the last, denormals too."""
    words = np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)
    return (words & ~np.uint32(0x40000000)).view(np.float32)


def test_bfloat16_keeps_eight_significant_bits() -> None:
    # 1 + 2^-8 is half way and goes to the even 1, 1 + 3 * 2^-8 to 1 + 2^-6; a little more is rounded up
    values = floats(1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 2**-8 + 2**-20), 0.0)
    assert round_to(values, "bf16").tolist() == [1, 1 + 2**-6, 1 + 2**-7, -(1 + 2**-7), 0]


def test_float16_keeps_eleven_bits_of_the_largest() -> None:
    # the largest is 1.5 = 24576 * 2^-14: a step is 16 * 2^-14 = 2^-10 there, 2^-13 at 1/8
    values = floats(1.5, 1 + 2**-11, 1 + 3 * 2**-11, 1 / 8 + 2**-14, -1 / 8 - 3 * 2**-14)
    assert round_to(values, "fp16").tolist() == [1.5, 1, 1 + 2**-9, 1 / 8, -1 / 8 - 2**-12]


def test_float32_is_as_it_was() -> None:
    values = floats(0.1, -3e-45, MAX_FLOAT32)
    assert round_to(values, "fp32") is values


def test_the_exponent_brings_the_largest_between_2_to_the_14_and_2_to_the_15() -> None:
    assert [half_exponent(value) for value in (1.0, 1.99, 2.0**14, 2.0**-149, MAX_FLOAT32)] == [14, 14, 0, 163, -113]
    for value in random_floats(1000, 0):
        if value:
            assert 2**14 <= abs(float(value)) * 2.0 ** half_exponent(abs(float(value))) < 2**15


def test_bfloat16_is_the_nearest_value_of_eight_bits() -> None:
    values = random_floats(5000, 1)
    for value, rounded in zip(values.tolist(), round_to(values, "bf16").tolist(), strict=True):
        step = 2.0 ** (max(bit_length_of(value), -126) - 7) if value else 1.0
        assert rounded == slow_rounded(value, step)


@pytest.mark.parametrize("scale", [1.0, 2.0**-120, 2.0**-149, 2.0**100])
def test_float16_is_the_nearest_multiple_in_the_scale_of_the_largest(scale: float) -> None:
    rng = np.random.default_rng(2)
    values = (rng.standard_normal(3000) * 10.0 ** rng.integers(-8, 3, 3000) * 9 * scale).astype(np.float32)
    down = 2.0 ** -half_exponent(max_magnitude(values))
    for value, rounded in zip(values.tolist(), round_to(values, "fp16").tolist(), strict=True):
        step = max(2.0 ** (bit_length_of(value) - 10), 2.0**-24 * down) if value else 1.0
        assert rounded == slow_rounded(value, step)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("largest", [MAX_FLOAT32, 3.2e38, 3.4e38])
def test_the_largest_values_stay_finite_and_near(precision: str, largest: float) -> None:
    rounded = round_to(floats(largest, -largest, 1.0), precision)
    assert np.isfinite(rounded).all()
    assert rounded[0] == -rounded[1]
    assert float(rounded[0]) == pytest.approx(largest, rel=2**-8 if precision == "bf16" else 2**-11)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_largest_float32_becomes_the_largest_of_the_format(precision: str) -> None:
    top = {"bf16": (2 - 2**-7) * 2.0**127, "fp16": (2 - 2**-10) * 2.0**127}
    assert round_to(floats(MAX_FLOAT32, -MAX_FLOAT32), precision).tolist() == [top[precision], -top[precision]]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_rounding_again_in_the_same_scale_changes_nothing(precision: str) -> None:
    for values in (
        random_floats(1000, 3),
        floats(0, -0.0),
        floats(2**-149),
        floats(-1.9999),
        random_floats(BLOCK_ENTRIES + 9, 4),
    ):
        once = round_to(values, precision)
        twice: NDArray[np.float32] = round_to(once, precision)
        assert twice.tobytes() == once.tobytes()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_nothing_stays_nothing(precision: str) -> None:
    assert round_to(floats(), precision).size == 0


def test_another_precision_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="precision is 'fp8'; it is one of 'fp32', 'bf16', 'fp16'"):
        round_to(floats(1), "fp8")
