"""Values at positions that a seed tells: no index on the wire."""

import struct
from dataclasses import dataclass

import numpy as np

from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import values
from fedcomp.errors import TruncatedError
from fedcomp.quantized import SEEDS, Seeded, seeded_indices

SEED = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class SeededValues:
    """Seeded symbols: the values, and the seed that their positions are drawn from.

    The random mask of Konečný et al., "Federated Learning: Strategies for Improving Communication Efficiency",
    arXiv:1610.05492, section 2.
    """

    def encode(self, value: Seeded, /) -> bytes:
        """Return the body: n, k, seed, values (`values.py`)."""
        k = value.values.size
        begin = head.put(value.n, k)
        return begin + SEED.pack(value.seed % SEEDS) + values.put(value.values) if k else begin

    def decode(self, value: bytes, /, n: int | None = None) -> Seeded:
        """Return the symbols; the positions are drawn once the values are read, so that there are no more than came."""
        total, k, at = head.take(value, n)
        if not k:
            return Seeded(total, 0, np.empty(0, np.int64), np.empty(0, np.float32))
        if len(value) < at + SEED.size:
            raise TruncatedError("the body ends within the seed")
        (seed,) = SEED.unpack_from(value, at)
        entries, at = values.take(value, at + SEED.size, k)
        head.check_end(value, at)
        return Seeded(total, seed, seeded_indices(total, k, seed), entries)
