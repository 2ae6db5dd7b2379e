"""Codec 1: the entries as little-endian float32, and nothing else."""

from dataclasses import dataclass

import numpy as np

from fedcomp.errors import CorruptError
from fedcomp.quantized import Dense


@dataclass(frozen=True, slots=True)
class Raw:
    """Four bytes an entry."""

    def encode(self, value: Dense, /) -> bytes:
        """Return the entries, "<f4"."""
        return value.vector.astype("<f4", copy=False).tobytes()

    def decode(self, value: bytes, /, n: int | None = None) -> Dense:
        """Return the entries, float32 (n,); refuse NaN and infinity."""
        if len(value) % 4 or (n is not None and len(value) != 4 * n):
            needed = "a multiple of 4" if n is None else f"{4 * n} for {n} entries"
            raise CorruptError(f"a raw body of {len(value)} bytes; {needed} is needed")
        vector = np.frombuffer(value, "<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise CorruptError("a raw body holds NaN or infinity")
        return Dense(vector)
