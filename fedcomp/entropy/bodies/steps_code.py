"""Codec 11: kept entries in whole units, as the sums of many deltas are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import alphabet, positions
from fedcomp.errors import CorruptError
from fedcomp.quantized import Steps

LENGTHS = 31
"""A count has at most this many bits beside its sign."""

Counts = NDArray[np.int64]
"""Magnitudes of counts, 1 or more."""


@dataclass(frozen=True, slots=True)
class StepsCode:
    """Positions, signs, and the counts in Elias' gamma code, with the lengths of the counts in a code of their own.

    P. Elias, "Universal codeword sets and representations of the integers", IEEE Trans. Inf. Theory 21, 1975.  Trailing zero
    bits that all counts share are not written.
    """

    def encode(self, value: Steps, /) -> bytes:
        """Return the body: n, k, shift, positions, signs, lengths, and bit 0, 1, ... of all counts that are longer."""
        k = value.indices.size
        begin = head.write(value.n, k)
        if not k:
            return begin
        counts = np.abs(value.counts.astype(np.int64))
        shift = _shared_zeros(counts)
        counts >>= shift
        lengths = _lengths(counts)
        return b"".join(
            (
                begin,
                bytes([shift]),
                positions.write(value.indices, value.n),
                np.packbits(value.counts < 0).tobytes(),
                alphabet.write(lengths, LENGTHS),
                *(np.packbits(counts[lengths > plane] >> plane & 1).tobytes() for plane in range(int(lengths.max()))),
            )
        )

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
        counts = np.left_shift(1, lengths, dtype=np.int32)
        for plane in range(longest):
            _add_plane(counts, lengths > plane, reader, plane)
        counts <<= shift
        reader.end()
        np.negative(counts, out=counts, where=negative)
        return Steps(total, indices, counts)


def _add_plane(counts: NDArray[np.int32], has: NDArray[np.bool_], reader: ByteReader, plane: int) -> None:
    """Add bit number `plane` of the counts that have it."""
    bits, begin = reader.flags(int(np.count_nonzero(has)), "counts"), 0
    for start in range(0, counts.size, BLOCK_ENTRIES):
        part = slice(start, start + BLOCK_ENTRIES)
        end = begin + int(np.count_nonzero(has[part]))
        counts[part][has[part]] |= bits[begin:end].astype(np.int32) << plane
        begin = end


def _shared_zeros(counts: Counts) -> int:
    """Return how many trailing zero bits all counts have."""
    bits = int(np.bitwise_or.reduce(counts))
    return (bits & -bits).bit_length() - 1


def _lengths(counts: Counts) -> NDArray[np.uint8]:
    """Return floor(log2(count)) of each count."""
    return (np.frexp(counts.astype(np.float64))[1] - 1).astype(np.uint8)
