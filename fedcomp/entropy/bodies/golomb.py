"""Codecs 2 and 3: ternary vectors in Golomb-Rice code, in streams or in the order of the STC paper."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits.byte_reader import ByteReader, Octets
from fedcomp.entropy.bodies import head
from fedcomp.entropy.codes import golomb_positions
from fedcomp.entropy.codes.golomb_positions import MAX_RICE, indices_of, runs_of
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices, Ternary

ROUNDING = 1
"""A sender whose logarithm is rounded differently may find a Rice parameter that differs by this."""
STRETCH = 1 << 12
"""Bytes read at a time."""


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


@dataclass(frozen=True, slots=True)
class GolombTernaryInterleaved:
    """Ternary vectors in the format of Sattler et al., TNNLS 2020, section V and Algorithm 3, with b* computed from k / n.

    Kept because it is the paper's format: as small as `GolombTernary` on independent positions, larger on real updates, and
    slower to decode.
    """

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, b, then per entry the quotient, the remainder and the sign."""
        k = value.indices.size
        if not k:
            return head.write(value.n, 0)
        rice = min(MAX_RICE, rice_parameter(k / value.n))
        runs = runs_of(value.indices, value.n).ravel()[:k].astype(np.int64)
        ends = np.cumsum((runs >> rice) + (rice + 2))
        stream = np.ones(int(ends[-1]), np.uint8)
        stream[ends - (rice + 2)] = 0
        for place in range(rice):
            stream[ends - 2 - place] = runs >> place & 1
        stream[ends - 1] = value.negative
        return write_head(value) + bytes([rice]) + np.packbits(stream).tobytes()

    def decode(self, value: bytes, /, n: int | None = None) -> Ternary:
        """Return the ternary vector."""
        reader = ByteReader(value)
        total, k, magnitude = read_head(reader, n)
        if not k:
            return Ternary(total, np.empty(0, np.int64), np.empty(0, np.bool_), magnitude)
        rice, most = reader.byte("Rice parameter"), min(MAX_RICE, rice_parameter(k / total) + ROUNDING)
        if rice > most:  # each bit of a remainder takes time
            raise CorruptError(f"a Rice parameter of {rice} for {k} of {total} entries; at most {most} is allowed")
        if 8 * reader.left > k * (rice + 2) + (total >> rice) + 7:
            raise CorruptError(f"{reader.left} bytes of gaps; {k} within {total} entries take fewer")
        runs, negative, bits = _read(np.frombuffer(value, np.uint8, offset=reader.offset), k, rice, total)
        reader.bits(bits, "gaps")
        reader.end()
        runs += 1
        return Ternary(total, indices_of(runs, total), negative, magnitude)


def rice_parameter(density: float) -> int:
    """Return b* for independent positions kept with probability `density`.

    b* = 1 + floor(log2(ln(phi - 1) / ln(1 - p))), with phi the golden ratio and p the density; Sattler et al., TNNLS 2020,
    section V.
    """
    if density >= 1:
        return 0
    phi = (math.sqrt(5) + 1) / 2
    return max(0, 1 + math.floor(math.log2(math.log(phi - 1) / math.log1p(-density))))


def _read(octets: Octets, k: int, rice: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Return the runs and signs of the first `k` entries in `octets`, and their bits; refuse gaps longer than `n`."""
    runs, negative = np.empty(k, np.int64), np.empty(k, np.bool_)
    done = 0  # entries
    offset = 0  # of the bit where the next stretch begins, before or within a quotient
    end = 0  # of the last entry
    while done < k:
        first = offset // 8
        stretch = np.unpackbits(octets[first : first + STRETCH])[offset % 8 :]
        zeros = np.flatnonzero(stretch == 0)
        closing = _closing_zeros(zeros, rice, stretch.size)[: k - done]
        if closing.size:
            part = slice(done, done + closing.size)
            ends = closing + (offset + rice + 2)
            quotients = np.diff(ends, prepend=end) - (rice + 2)
            if quotients.max() > n >> rice:
                raise CorruptError(f"a gap is longer than the {n} entries")
            for place in range(1, rice + 1):
                quotients <<= 1
                quotients |= stretch[closing + place]
            runs[part], negative[part] = quotients, stretch[closing + (rice + 1)]
            done, offset = part.stop, int(ends[-1])
            end = offset
        elif first + STRETCH < octets.size:
            offset += int(zeros[0]) if zeros.size else stretch.size
        else:
            raise TruncatedError(f"{done} gaps in {octets.size} bytes; {k} are needed")
    return runs, negative, end


def _closing_zeros(zeros: Indices, rice: int, size: int) -> Indices:
    """Return the ends of the quotients of all entries within a stretch of `size` bits that has these `zeros`.

    After a closing zero come the remainder and the sign; the next closing zero is the first zero behind them.  This rule links
    every zero to its successor.  Following the links from the first zero, and doubling the steps, takes few gathers.
    """
    successor = np.append(np.searchsorted(zeros, zeros + (rice + 2)), zeros.size)
    path = np.zeros(1, np.int64)
    while path[-1] < zeros.size:
        path = np.concatenate((path, successor[path]))
        successor = successor[successor]
    closing = zeros[path[path < zeros.size]]
    return closing[closing + (rice + 2) <= size]
