"""Float32 values in the smallest of the formats that hold them exactly; the format's number begins the stream.

FP32: as they are.  BF16: the upper halves, where the lower ones are zero.  FP16: float16 over a power of two.  NATURAL: signs
and exponents, where every value is 0 or ±2^e: the 9 bits of Horváth et al., "Natural Compression for Distributed Deep
Learning", arXiv:1905.10988, or fewer.  How many there are is not in the stream.  No values take no bytes.

Quantizers round to one of these formats with `symbols/precision.py`.
"""

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, Vector
from fedcomp.entropy.bits import packing
from fedcomp.entropy.codes import alphabet
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import from_halves, half_exponent, max_magnitude, to_halves

FP32, BF16, FP16, NATURAL = range(4)
EXPONENTS = 255
"""Biased exponents of finite values."""
SCALE = struct.Struct("<h")
SCALES = range(half_exponent(MAX_FLOAT32), half_exponent(2.0**-149) + 2)


def put(values: Vector) -> bytes:
    """Return the stream of `values`, which are finite."""
    if not values.size:
        return b""
    words = np.ascontiguousarray(values).view(np.uint32)
    if not _any(words, 0x0000FFFF):
        upper = bytes([BF16]) + (words >> np.uint32(16)).astype("<u2").tobytes()
        return upper if _any(words, 0x007FFFFF) else min(_natural(words), upper, key=len)
    largest = max_magnitude(values)
    exponent = half_exponent(largest)
    # Rounding may have lifted the largest value to a power of two: then it lay below in the scale that was rounded in.
    for scale in (exponent, exponent + 1) if math.frexp(largest)[0] == 0.5 else (exponent,):
        halves = _exact_halves(values, scale)
        if halves is not None:
            return bytes([FP16]) + SCALE.pack(scale) + halves
    return bytes([FP32]) + values.astype("<f4", copy=False).tobytes()


def take(data: bytes, at: int, k: int) -> tuple[Vector, int]:
    """Return the `k` values, finite, that lie in `data` from `at` on, and where the next field begins."""
    if not k:
        return np.empty(0, np.float32), at
    if at >= len(data):
        raise TruncatedError("the body ends before the values")
    form, at = data[at], at + 1
    if form == FP32:
        values = _array(data, at, k, "<f4").astype(np.float32)
        at += 4 * k
    elif form == BF16:
        words = _array(data, at, k, "<u2").astype(np.uint32)
        words <<= np.uint32(16)
        values, at = words.view(np.float32), at + 2 * k
    elif form == FP16:
        scale = int(_array(data, at, 1, "<i2")[0])
        if scale not in SCALES:
            raise CorruptError(f"values times 2^{scale}; it is 2^{SCALES[0]} to 2^{SCALES[-1]}")
        values = from_halves(_array(data, at + SCALE.size, k, "<f2"), scale)
        at += SCALE.size + 2 * k
    elif form == NATURAL:
        size = -(-k // 8)
        negative = packing.flags(_array(data, at, size, "u1").tobytes(), k, "signs")
        exponents, at = alphabet.take(data, at + size, k, EXPONENTS)
        words = exponents.astype(np.uint32)
        words <<= np.uint32(23)
        for start in range(0, k, BLOCK_ENTRIES):
            words[start : start + BLOCK_ENTRIES] |= negative[start : start + BLOCK_ENTRIES].astype(
                np.uint32
            ) << np.uint32(31)
        values = words.view(np.float32)
    else:
        raise CorruptError(f"values of format {form}; known are {FP32} to {NATURAL}")
    if not np.isfinite(values).all():
        raise CorruptError("a body holds NaN or infinity")
    return values, at


def _any(words: NDArray[np.uint32], mask: int) -> bool:
    """Say whether a word has a bit of `mask`."""
    return any((words[at : at + BLOCK_ENTRIES] & np.uint32(mask)).any() for at in range(0, words.size, BLOCK_ENTRIES))


def _exact_halves(values: Vector, scale: int) -> bytes | None:
    """Return float16 `values` times 2^`scale`; None where one of them is not exact."""
    parts = []
    for start in range(0, values.size, BLOCK_ENTRIES):
        part = values[start : start + BLOCK_ENTRIES]
        halves = to_halves(part, scale)
        if not np.array_equal(from_halves(halves, scale).view(np.uint32), part.view(np.uint32)):
            return None
        parts.append(halves.astype("<f2", copy=False).tobytes())
    return b"".join(parts)


def _natural(words: NDArray[np.uint32]) -> bytes:
    exponents = words >> np.uint32(23) & np.uint32(0xFF)
    signs = np.packbits(words >> np.uint32(31) != 0)
    return bytes([NATURAL]) + signs.tobytes() + alphabet.put(exponents.astype(np.uint8), EXPONENTS)


def _array(data: bytes, at: int, count: int, dtype: str) -> NDArray[Any]:
    """Return `count` numbers that lie in `data` from `at` on."""
    size = np.dtype(dtype).itemsize * count
    if len(data) - at < size:
        raise TruncatedError(f"{len(data) - at} bytes of values; {count} of {dtype} need {size}")
    return np.frombuffer(data, dtype, count, at)
