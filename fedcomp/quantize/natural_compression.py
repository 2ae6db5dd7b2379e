"""Powers of two, rounded at random so that the mean is right: signs and exponents are what is left of floats."""

from dataclasses import dataclass

import numpy as np

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize.buckets import carried, drawing, signed
from fedcomp.quantized import EXPONENTS, Levels, Scale

LAST = 254  # the exponent of the largest power of two, 2^127
COUNT = 2 * LAST + 1


@dataclass(frozen=True, slots=True)
class Natural:
    """Round each entry at random to one of the two powers of two next to it, up with probability mantissa.

    Horváth, Ho, Horváth, Sahu, Canini, Richtárik, arXiv 1905.10988, natural compression.  It takes no multiplication: a random
    number is added to the mantissa, and the carry rounds.  Unbiased, and E||C(v)||^2 <= 9/8 ||v||^2.  At the ends of float32:
    denormals become zero or the smallest normal number, without bias; above 2^127 all is rounded down.
    """

    def quantize(self, value: CompensatedUpdate, /) -> Levels:
        """Return the levels: signs and exponents.  Raises `ValueError` where an entry is NaN or infinite."""
        draws = drawing(value.context)
        levels = np.empty(value.n, np.uint16)
        for start, block in value.blocks():
            exponents = carried(block.view(np.int32) & np.int32(0x7FFFFFFF), draws.words(block.size))
            np.minimum(exponents, np.int32(LAST), out=exponents)
            np.add(signed(exponents, block), LAST, out=levels[start : start + block.size], casting="unsafe")
        return Levels(levels, Scale(EXPONENTS, COUNT), np.ones(1, np.float32), None, (value.n,))
