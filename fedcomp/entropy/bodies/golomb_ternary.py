"""Ternary symbols in Golomb-Rice code: the positions of `golomb_positions.py`, then the signs."""

import math
from dataclasses import dataclass

import numpy as np

from fedcomp.entropy.bits import packing
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import golomb_positions
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Ternary


@dataclass(frozen=True, slots=True)
class GolombTernary:
    """Ternary symbols in split streams, about 1.01 times the entropy of independent positions and signs, or less."""

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, Rice parameters, length of the quotients, quotients, remainders, signs."""
        k = value.indices.size
        begin = head.put(value.n, k)
        if not k:
            return begin
        table = golomb_positions.gaps(value.indices, value.n)
        return b"".join(
            (
                begin,
                np.array(value.magnitude, "<f4").tobytes(),
                *golomb_positions.measure(table, k).write(),
                np.packbits(value.negative).tobytes(),
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> Ternary:
        """Return the symbols."""
        total, k, magnitude, at = read_head(value, n)
        if not k:
            return Ternary(total, np.empty(0, np.int64), np.empty(0, np.bool_), magnitude)
        indices, at = golomb_positions.take(value, at, total, k)
        return Ternary(total, indices, packing.flags(value[at:], k, "signs"), magnitude)


def rice_parameter(density: float) -> int:
    """Return b* for independent positions kept with probability `density`.

    b* = 1 + floor(log2(ln(phi - 1) / ln(1 - p))), phi the golden ratio; Sattler et al., TNNLS 2020, section V.
    """
    if density >= 1:
        return 0
    phi = (math.sqrt(5) + 1) / 2
    return max(0, 1 + math.floor(math.log2(math.log(phi - 1) / math.log1p(-density))))


def read_head(data: bytes, n: int | None) -> tuple[int, int, np.float32, int]:
    """Return n, k, magnitude and where the next field begins; refuse what cannot be."""
    total, k, at = head.take(data, n)
    if k == 0:
        return total, 0, np.float32(0), at
    if len(data) < at + 4:
        raise TruncatedError("the body ends within the magnitude")
    magnitude = np.float32(np.frombuffer(data, "<f4", 1, at)[0])
    if not (np.isfinite(magnitude) and magnitude > 0):
        raise CorruptError(f"a magnitude of {magnitude}; it is finite and above 0")
    return total, k, magnitude, at + 4
