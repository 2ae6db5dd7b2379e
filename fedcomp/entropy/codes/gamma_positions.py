"""Positions as gaps g >= 1 from one kept index to the next, the first gap from index -1, in gamma codes (`gamma.py`).

Kept entries form clusters: many gaps are short and some are long, which no Golomb code fits.  The code of the lengths follows
the actual distribution of the gaps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import gamma, plain_alphabet
from fedcomp.entropy.codes.golomb_positions import indices_of
from fedcomp.errors import CorruptError
from fedcomp.quantized import Indices

BOUND = gamma.MAX_LENGTH + 1
"""A gap is at most 2^31."""


@dataclass(frozen=True, slots=True, eq=False)
class GammaPositions:
    """Gaps g = `runs` + 1 with their lengths, and the `stream` of the lengths."""

    runs: NDArray[np.uint32]
    lengths: gamma.Lengths
    stream: bytes
    low_bytes: int

    @property
    def size(self) -> int:
        """The bytes that `write` takes."""
        return len(self.stream) + self.low_bytes

    def write(self) -> Iterator[bytes]:
        """Yield the lengths, then the low bits."""
        yield self.stream
        yield from gamma.write_low_bits(self.runs + np.uint32(1), self.lengths)


def measure(runs: NDArray[np.uint32]) -> GammaPositions:
    """Return the gaps `runs` + 1, uint32 (k,), ready to be written."""
    lengths = gamma.lengths_of(runs + np.uint32(1))
    counts = plain_alphabet.histogram(lengths, BOUND)
    stream = b"".join(plain_alphabet.plan(counts).write(lengths))
    return GammaPositions(runs, lengths, stream, gamma.low_bytes(counts))


def read(reader: ByteReader, n: int, k: int) -> Indices:
    """Return the next `k` indices below `n`."""
    lengths = plain_alphabet.read(reader, k, BOUND)
    least = plain_alphabet.histogram(lengths, BOUND) @ (1 << np.arange(BOUND, dtype=np.int64))
    if least > n:
        raise CorruptError(f"{k} gaps of {least} entries at least, in a vector of {n}")
    return indices_of(gamma.read_low_bits(reader, lengths, "gaps", np.int64), n)
