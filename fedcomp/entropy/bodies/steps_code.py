"""Codec 11: kept entries in whole units, such as the sum of many deltas."""

from dataclasses import dataclass

import numpy as np

from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import alphabet, gamma, positions
from fedcomp.errors import CorruptError
from fedcomp.quantized import Steps

LENGTHS = 31
"""A count has at most this many bits in addition to its sign."""


@dataclass(frozen=True, slots=True)
class StepsCode:
    """Positions, signs, and the counts in gamma codes (`gamma.py`), without the trailing zero bits that all counts share."""

    def encode(self, value: Steps, /) -> bytes:
        """Return the body: n, k, shift, positions, signs, lengths and low bits of the counts."""
        k = value.indices.size
        begin = head.write(value.n, k)
        if not k:
            return begin
        counts = np.abs(value.counts.astype(np.int64))
        bits = int(np.bitwise_or.reduce(counts))
        shift = (bits & -bits).bit_length() - 1  # the trailing zero bits that all counts have
        counts >>= shift
        lengths = gamma.lengths_of(counts)
        parts = [
            begin,
            bytes([shift]),
            positions.write(value.indices, value.n),
            np.packbits(value.counts < 0).tobytes(),
        ]
        return b"".join((*parts, alphabet.write(lengths, LENGTHS), *gamma.write_low_bits(counts, lengths)))

    def decode(self, value: bytes, /, n: int | None = None) -> Steps:
        """Return the steps; refuse counts beyond `MAX_STEPS`."""
        reader = ByteReader(value)
        total, k = head.read(reader, n)
        if not k:
            return Steps(total, np.empty(0, np.int64), np.empty(0, np.int32))
        shift = reader.byte("shift")
        indices, negative = positions.read(reader, total, k), reader.flags(k, "signs")
        lengths = alphabet.read(reader, k, LENGTHS)
        if (longest := int(lengths.max())) + shift >= LENGTHS:
            raise CorruptError(f"counts of {longest + 1} bits, shifted by {shift}; at most {LENGTHS} bits are allowed")
        counts = gamma.read_low_bits(reader, lengths, "counts", np.int32)
        counts <<= shift
        reader.end()
        np.negative(counts, out=counts, where=negative)
        return Steps(total, indices, counts)
