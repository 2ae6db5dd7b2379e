"""Float32 values in the smallest format that holds them exactly; the stream begins with the number of the format.

FP32: four bytes each.  BF16: the upper halves, if the lower halves are zero.  FP16: float16 over a power of two.  NATURAL:
signs and exponents, if every value is 0 or ±2^e: the 9 bits of Horváth et al., "Natural Compression for Distributed Deep
Learning", arXiv:1905.10988, or fewer.  The number of values is not in the stream.  An empty stream takes no bytes.
"""

import math
import struct

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, Vector, block_slices
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import alphabet
from fedcomp.errors import CorruptError
from fedcomp.quantized import from_halves, half_exponent, max_magnitude, to_halves

FP32, BF16, FP16, NATURAL = range(4)
EXPONENTS = 255
"""The number of biased exponents of finite values."""
SCALE = struct.Struct("<h")
SCALES = range(half_exponent(MAX_FLOAT32), half_exponent(2.0**-149) + 2)


def write(values: Vector) -> bytes:
    """Return the stream of `values`, which are finite."""
    if not values.size:
        return b""
    words = np.ascontiguousarray(values).view(np.uint32)
    if not _any_bit(words, 0x0000FFFF):
        upper = bytes([BF16]) + (words >> np.uint32(16)).astype("<u2").tobytes()
        return upper if _any_bit(words, 0x007FFFFF) else min(_natural(words), upper, key=len)
    largest = max_magnitude(values)
    exponent = half_exponent(largest)
    # A largest value that is a power of two may have been rounded up: then it was below that power in the rounding's scale.
    for scale in (exponent, exponent + 1) if math.frexp(largest)[0] == 0.5 else (exponent,):
        halves = _exact_halves(values, scale)
        if halves is not None:
            return bytes([FP16]) + SCALE.pack(scale) + halves
    return bytes([FP32]) + values.astype("<f4", copy=False).tobytes()


def read(reader: ByteReader, k: int) -> Vector:
    """Return the next `k` values, float32 and finite."""
    if not k:
        return np.empty(0, np.float32)
    form = reader.byte("format of the values")
    if form == FP32:
        values = reader.array("<f4", k, "values").astype(np.float32)
    elif form == BF16:
        words = reader.array("<u2", k, "values").astype(np.uint32)
        words <<= np.uint32(16)
        values = words.view(np.float32)
    elif form == FP16:
        (scale,) = reader.unpack(SCALE, "scale of the values")
        if scale not in SCALES:
            raise CorruptError(f"values over 2^{scale}; 2^{SCALES[0]} to 2^{SCALES[-1]} is allowed")
        values = from_halves(reader.array("<f2", k, "values"), scale)
    elif form == NATURAL:
        negative = reader.flags(k, "signs")
        words = alphabet.read(reader, k, EXPONENTS).astype(np.uint32)
        words <<= np.uint32(23)
        for block in block_slices(k):
            words[block] |= negative[block].astype(np.uint32) << np.uint32(31)
        values = words.view(np.float32)
    else:
        raise CorruptError(f"values of format {form}; {FP32} to {NATURAL} are known")
    if not np.isfinite(values).all():
        raise CorruptError("a body holds NaN or infinity")
    return values


def _any_bit(words: NDArray[np.uint32], mask: int) -> bool:
    return any((words[part] & np.uint32(mask)).any() for part in block_slices(words.size))


def _exact_halves(values: Vector, scale: int) -> bytes | None:
    """Return float16 `values` times 2^`scale`; None if one of these is not exact."""
    parts: list[bytes] = []
    for part in block_slices(values.size):
        halves = to_halves(values[part], scale)
        if not np.array_equal(from_halves(halves, scale).view(np.uint32), values[part].view(np.uint32)):
            return None
        parts.append(halves.astype("<f2", copy=False).tobytes())
    return b"".join(parts)


def _natural(words: NDArray[np.uint32]) -> bytes:
    exponents = words >> np.uint32(23) & np.uint32(0xFF)
    signs = np.packbits(words >> np.uint32(31) != 0)
    return bytes([NATURAL]) + signs.tobytes() + alphabet.write(exponents.astype(np.uint8), EXPONENTS)
