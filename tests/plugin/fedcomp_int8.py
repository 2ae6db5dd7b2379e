"""A third party's method with a quantizer, a quantized vector and an entropy code of its own.

Importing this module registers the method `int8` and the codec id 200.  The entry point in pyproject.toml makes fedcomp
import it on every node that has the package installed.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedcomp
from fedcomp.core import CompensatedUpdate, Vector
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.memory import LinearFeedback
from fedcomp.methods import Parts

CODEC_ID = 200
HEAD = struct.Struct("<If")
MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ScaledIntegers:
    """Entries ``scale * integers``: `integers` int8 (n,), `scale` a finite float32, at least 0."""

    integers: NDArray[np.int8]
    scale: np.float32

    @property
    def n(self) -> int:
        """Entries of the vector."""
        return self.integers.size

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self.integers * self.scale

    def sparse(self) -> None:
        """Return None: every entry is there."""

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector`, in place."""
        vector += np.multiply(self.dense(), weight, dtype=vector.dtype)


@dataclass(frozen=True, slots=True)
class RoundToInt8:
    """Rounds each entry to a multiple of the largest magnitude / 127."""

    def quantize(self, value: CompensatedUpdate, /) -> ScaledIntegers:
        """Return the rounded vector.  Raises `ValueError` if an entry is NaN or infinite."""
        vector = value.dense()
        scale = np.abs(vector).max() / np.float32(127)
        if 127.0 * float(scale) > MAX_FLOAT32:  # the division was rounded up
            scale = np.nextafter(scale, np.float32(0))
        if not scale:  # it underflowed
            return ScaledIntegers(np.zeros(vector.size, np.int8), np.float32(0))
        return ScaledIntegers(np.rint(vector / np.float64(scale)).clip(-127, 127).astype(np.int8), scale)


@dataclass(frozen=True, slots=True)
class Int8Code:
    """Body: n as uint32, the scale as float32, then a byte an entry; little-endian."""

    def encode(self, value: ScaledIntegers, /) -> bytes:
        """Return the body."""
        return HEAD.pack(value.n, value.scale) + value.integers.tobytes()

    def decode(self, value: bytes, /, n: int | None = None) -> ScaledIntegers:
        """Return the vector.  Raises `FedcompError` for a damaged body or another length than `n`."""
        if len(value) < HEAD.size:
            raise TruncatedError(f"{len(value)} bytes; the head alone takes {HEAD.size}")
        length, scale = HEAD.unpack_from(value)
        if n is not None and n != length:
            raise CorruptError(f"a body of {length} entries; {n} are needed")
        if len(value) != HEAD.size + length:
            raise TruncatedError(f"{len(value)} bytes; {length} entries take {HEAD.size + length}")
        if not 0 <= 127 * scale <= MAX_FLOAT32:
            raise CorruptError(f"the scale is {scale}")
        integers = np.frombuffer(value, np.int8, offset=HEAD.size)
        if length and integers.min() < -127:
            raise CorruptError(f"an integer of {integers.min()}; -127 is the lowest")
        return ScaledIntegers(integers, np.float32(scale))


@fedcomp.register("fedcomp's example of a third party's method")
def int8() -> Parts:
    """Return 8-bit integers with one scale for the whole vector, and error feedback."""
    return RoundToInt8(), Int8Code(), LinearFeedback()


fedcomp.register_codec(CODEC_ID, Int8Code())
