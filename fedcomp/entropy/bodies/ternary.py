"""Codec 12: ternary vectors, with their positions in the kind that takes the fewest bytes."""

from dataclasses import dataclass

import numpy as np

from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.golomb import read_head, write_head
from fedcomp.entropy.codes import positions
from fedcomp.quantized import Ternary


@dataclass(frozen=True, slots=True)
class TernaryCode(positions.ChosenPositions):
    """Ternary vectors.  `positions`, one of `positions.CHOICES`, is the encoder's choice; any instance decodes.

    On updates of real models, whose kept entries form clusters, it is smaller than any Golomb code.
    """

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, positions (`positions.py`), signs."""
        if not value.indices.size:
            return head.write(value.n, 0)
        signs = np.packbits(value.negative).tobytes()
        return b"".join((write_head(value), positions.write(value.indices, value.n, self.positions), signs))

    def decode(self, value: bytes, /, n: int | None = None) -> Ternary:
        """Return the ternary vector."""
        reader = ByteReader(value)
        total, k, magnitude = read_head(reader, n)
        indices, negative = positions.read(reader, total, k), reader.flags(k, "signs")
        reader.end()
        return Ternary(total, indices, negative, magnitude)
