"""The squared norm of a chunk of entries, of any magnitude, with the same bits on every machine."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, Vector
from fedcomp.quantized import MAX_GAIN, MAX_SCALE

ORDINARY = 2.0**-80, 2.0**80
"""Chunks with a squared norm between these need no scaling: no sum leaves float32, and no underflow matters."""
MAX_EXACT_SUM = 64
"""Up to this many numbers, a sum is exact; longer sums are computed in halves."""


def normalize(entries: Vector, spare: Vector) -> tuple[float, int, float]:
    """Divide the entries by 2 to an exponent; return the squared norm, the exponent, and the largest magnitude.

    If the squared norm is `ORDINARY`, the exponent is 0, and the magnitude is returned as 0.
    """
    energy = squared_norm(entries, spare)
    if is_ordinary(energy):
        return energy, 0, 0.0
    peak = float(np.abs(entries, out=spare).max())
    exponent = math.frexp(peak)[1]
    np.ldexp(entries, -exponent, out=entries)
    return squared_norm(entries, spare), exponent, peak


def is_ordinary(energy: float) -> bool:
    """Return whether a squared norm in float32 had neither overflow nor, as far as it matters, underflow."""
    least, most = ORDINARY
    return least < energy < most


def squared_norm(entries: NDArray[Any], spare: NDArray[Any]) -> float:
    """Return the squared norm of a power of two of entries, or infinity; overwrite `spare`, which may be `entries`."""
    with np.errstate(over="ignore"):
        return exact_sum(np.multiply(entries, entries, out=spare))


def exact_sum(values: NDArray[Any]) -> float:
    """Return the sum of `values`, added in halves, so that rounding is the same on every machine; overwrite `values`."""
    while values.size > MAX_EXACT_SUM:
        half = values.size // 2
        values = np.add(values[:half], values[half:], out=values[:half])
    return math.fsum(values.tolist())


def largest_scale(peak: float) -> float:
    """Return the largest scale with which neither a received entry nor the residual of `peak` leaves float32."""
    return min((MAX_FLOAT32 - peak) / MAX_GAIN, float(np.nextafter(MAX_SCALE, np.float32(0))))
