"""Codec 2: ternary vectors in Golomb-Rice code: the positions of `golomb_positions.py`, then the signs."""

from dataclasses import dataclass

import numpy as np

from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import golomb_positions
from fedcomp.entropy.codes.gaps import runs_of
from fedcomp.errors import CorruptError
from fedcomp.quantized import Ternary


@dataclass(frozen=True, slots=True)
class GolombTernary:
    """Ternary vectors in split streams, about 1.01 times the entropy of independent positions and signs, or less."""

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, Rice parameters, length of the quotients, quotients, remainders, signs."""
        k = value.indices.size
        if not k:
            return head.write(value.n, 0)
        positions = golomb_positions.measure(runs_of(value.indices, value.n), k)
        return b"".join((write_head(value), *positions.write(), np.packbits(value.negative).tobytes()))

    def decode(self, value: bytes, /, n: int | None = None) -> Ternary:
        """Return the ternary vector."""
        reader = ByteReader(value)
        total, k, magnitude = read_head(reader, n)
        if not k:
            return Ternary(total, np.empty(0, np.int64), np.empty(0, np.bool_), magnitude)
        indices, negative = golomb_positions.read(reader, total, k), reader.flags(k, "signs")
        reader.end()
        return Ternary(total, indices, negative, magnitude)


def write_head(value: Ternary) -> bytes:
    """Return n, k and the magnitude."""
    return head.write(value.n, value.indices.size) + np.array(value.magnitude, "<f4").tobytes()


def read_head(reader: ByteReader, n: int | None) -> tuple[int, int, np.float32]:
    """Return n, k and the magnitude: finite and above 0, or 0 if k is 0."""
    total, k = head.read(reader, n)
    if k == 0:
        return total, 0, np.float32(0)
    magnitude = np.float32(reader.array("<f4", 1, "magnitude")[0])
    if not (np.isfinite(magnitude) and magnitude > 0):
        raise CorruptError(f"a magnitude of {magnitude}; it is finite and above 0")
    return total, k, magnitude
