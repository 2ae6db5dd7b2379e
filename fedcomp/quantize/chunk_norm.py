"""Sums and squared norms of chunks of entries, of any magnitude, with the same bits on every machine."""

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
    energy, (least, most) = squared_norm(entries, spare), ORDINARY
    if least < energy < most:
        return energy, 0, 0.0
    peak = float(np.abs(entries, out=spare).max())
    exponent = math.frexp(peak)[1]
    np.ldexp(entries, -exponent, out=entries)
    return squared_norm(entries, spare), exponent, peak


def squared_norm(entries: Vector, spare: Vector) -> float:
    """Return the squared norm of `entries`, a power of two of them, or infinity; overwrite `spare`."""
    with np.errstate(over="ignore"):
        return halved_sum(np.multiply(entries, entries, out=spare))


def halved_sum(values: Vector) -> float:
    """Return the sum of `values`, a power of two of them, added in halves; overwrite `values`."""
    while values.size > MAX_EXACT_SUM:
        half = values.size // 2
        values = np.add(values[:half], values[half:], out=values[:half])
    return math.fsum(values.tolist())


def column_sums(matrix: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sum of each column, float64, added in halves; long columns lose bits as float32 does."""
    while len(matrix) > 1:
        half, odd = len(matrix) // 2, matrix[len(matrix) // 2 * 2 :]
        dtype = matrix.dtype if len(matrix) > MAX_EXACT_SUM else np.float64
        matrix = np.add(matrix[:half], matrix[half : 2 * half], dtype=dtype)
        matrix[: len(odd)] += odd
    sums: NDArray[np.float64] = matrix[0].astype(np.float64)
    return sums


def largest_scale(peak: float) -> float:
    """Return the largest scale with which neither a received entry nor the residual of `peak` leaves float32."""
    return min((MAX_FLOAT32 - peak) / MAX_GAIN, float(np.nextafter(MAX_SCALE, np.float32(0))))
