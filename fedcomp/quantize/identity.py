"""No loss at all: what `dense()` is made of."""

from dataclasses import dataclass

import numpy as np

from fedcomp.quantize import on_device
from fedcomp.symbols import Dense, LazySum


@dataclass(frozen=True, slots=True)
class Identity:
    """Keep every entry as it is."""

    def encode(self, value: LazySum, /) -> Dense:
        """Return all entries.  Raises `ValueError` where one is NaN or infinite."""
        if not isinstance(value.parts[0], np.ndarray):
            value = LazySum(*(on_device.host(part) for part in value.parts))
        return Dense(value.dense())

    def decode(self, value: Dense, /) -> LazySum:
        """Return the entries."""
        return LazySum(value.vector)
