"""Float32 values rounded to formats of two bytes, within their range."""

import math

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, Vector, block_slices, check_choice

PRECISIONS = ("fp32", "bf16", "fp16")
Halves = NDArray[np.float16]

MAX_BF16_BITS = 0x7F7F0000
"""The bits of the largest finite bfloat16, as float32."""
MAX_HALF = 32752.0
"""The largest float16 below 2^15."""


def round_to(values: Vector, precision: str) -> Vector:
    """Return `values` rounded to the nearest of `precision`, float32; of two equally near ones, to the even one.

    "fp32" returns `values` themselves.  "bf16" keeps 8 significant bits.  "fp16" multiplies by 2^`half_exponent`, which brings
    the largest magnitude to the upper end of float16, where it keeps 11 bits.  A finite value that would become infinite
    becomes the largest finite one.
    """
    check_choice("precision", precision, PRECISIONS)
    if precision == "fp32" or not values.size:
        return values
    rounded = np.empty_like(values)
    exponent = half_exponent(max_magnitude(values))
    for part in block_slices(values.size):
        if precision == "bf16":
            rounded[part] = _bf16(values[part])
        else:
            rounded[part] = from_halves(to_halves(values[part], exponent), exponent)
    return rounded


def max_magnitude(values: Vector) -> float:
    """Return the largest magnitude."""
    return max(float(values.max()), -float(values.min()))


def half_exponent(largest: float) -> int:
    """Return the e for which the `largest` magnitude times 2^e is in [2^14, 2^15); 15 if the magnitude is zero."""
    return 15 - math.frexp(largest)[1]


def to_halves(values: Vector, exponent: int) -> Halves:
    """Return float16 `values` times 2^`exponent`, rounded; the products are within ±2^15."""
    scaled = np.multiply(values, math.ldexp(1.0, exponent), dtype=np.float64)
    if exponent == half_exponent(MAX_FLOAT32):  # 2^15 would become 2^128
        np.clip(scaled, -MAX_HALF, MAX_HALF, out=scaled)
    return scaled.astype(np.float16)


def from_halves(halves: Halves, exponent: int) -> Vector:
    """Return float16 `halves` over 2^`exponent`, float32."""
    values = np.empty(halves.size, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(halves, math.ldexp(1.0, -exponent), out=values, dtype=np.float64, casting="unsafe")
    return values


def _bf16(values: Vector) -> Vector:
    words = values.view(np.uint32)
    magnitude = words & np.uint32(0x7FFFFFFF)
    magnitude += np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))
    magnitude &= np.uint32(0x7FFF0000)
    np.minimum(magnitude, np.uint32(MAX_BF16_BITS), out=magnitude)
    magnitude |= words & np.uint32(0x80000000)
    return magnitude.view(np.float32)
