"""Codec 6: values at positions that are drawn from a seed, so that no index is in the body."""

import struct
from dataclasses import dataclass

import numpy as np

from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import values
from fedcomp.quantized import NUM_SEEDS, Seeded, seeded_indices

SEED = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class SeededValues:
    """The values, and the seed that their positions are drawn from.

    The random mask of Konečný et al., "Federated Learning: Strategies for Improving Communication Efficiency",
    arXiv:1610.05492, section 2.
    """

    def encode(self, value: Seeded, /) -> bytes:
        """Return the body: n, k, seed, values (`values.py`)."""
        k = value.values.size
        begin = head.write(value.n, k)
        return begin + SEED.pack(value.seed % NUM_SEEDS) + values.write(value.values) if k else begin

    def decode(self, value: bytes, /, n: int | None = None) -> Seeded:
        """Return the seeded vector.  Positions are drawn only for values that have been read."""
        reader = ByteReader(value)
        total, k = head.read(reader, n)
        if not k:
            return Seeded(total, 0, np.empty(0, np.int64), np.empty(0, np.float32))
        (seed,) = reader.unpack(SEED, "seed")
        entries = values.read(reader, k)
        reader.end()
        return Seeded(total, seed, seeded_indices(total, k, seed), entries)
