"""Powers of two, rounded at random without bias: only the signs and exponents of floats remain."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize.buckets import round_exponents, rounding_stream, signed
from fedcomp.quantized import EXPONENTS, Levels, Scale

MAX_EXPONENT = 254  # of the largest power of two, 2^127, as float32 stores it


@dataclass(frozen=True, slots=True)
class Natural:
    """Round each entry at random to one of the two powers of two next to it, up with probability mantissa.

    Horváth, Ho, Horváth, Sahu, Canini, Richtárik, arXiv 1905.10988, natural compression.  A random number
    is added to the mantissa, and the carry rounds.  Unbiased, and E||C(v)||^2 <= 9/8 ||v||^2.  Denormals become zero or the
    smallest normal number, without bias; entries above 2^127 are rounded down.
    """

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels: signs and exponents.  Raises `ValueError` if an entry is NaN or infinite."""
        draws = rounding_stream(value.context)
        levels = np.empty(value.n, np.uint16)
        for start, block in value.blocks():
            exponents = round_exponents(block.view(np.int32) & np.int32(0x7FFFFFFF), draws.words(block.size))
            np.minimum(exponents, np.int32(MAX_EXPONENT), out=exponents)
            np.add(signed(exponents, block), MAX_EXPONENT, out=levels[start : start + block.size], casting="unsafe")
        return Levels(levels, Scale(EXPONENTS, 2 * MAX_EXPONENT + 1), np.ones(1, np.float32), None, (value.n,))
