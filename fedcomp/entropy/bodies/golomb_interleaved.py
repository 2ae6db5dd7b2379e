"""The STC paper's own order of Golomb bits: quotient, remainder and sign of one entry after the other.

Sattler et al., TNNLS 2020, section V and Algorithm 3.  Kept for faithfulness: as small as `golomb.py` on independent
positions, larger on real updates (one Rice parameter for all), and slower to decode.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.golomb_ternary import read_head, rice_parameter
from fedcomp.entropy.codes.golomb_positions import MAX_RICE, gaps, positions
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices, Ternary

STRETCH = 1 << 12
"""Bytes read at a time."""


@dataclass(frozen=True, slots=True)
class GolombTernaryInterleaved:
    """Ternary symbols as the paper writes them, b* computed from k / n."""

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, b, then per entry the quotient, the remainder and the sign."""
        k = value.indices.size
        begin = head.put(value.n, k)
        if not k:
            return begin
        rice = min(MAX_RICE, rice_parameter(k / value.n))
        runs = gaps(value.indices, value.n).ravel()[:k].astype(np.int64)
        ends = np.cumsum((runs >> rice) + (rice + 2))
        stream = np.ones(int(ends[-1]), np.uint8)
        stream[ends - (rice + 2)] = 0
        for place in range(rice):
            stream[ends - 2 - place] = runs >> place & 1
        stream[ends - 1] = value.negative
        return begin + np.array(value.magnitude, "<f4").tobytes() + bytes([rice]) + np.packbits(stream).tobytes()

    def decode(self, value: bytes, /, n: int | None = None) -> Ternary:
        """Return the symbols."""
        total, k, magnitude, at = read_head(value, n)
        if not k:
            return Ternary(total, np.empty(0, np.int64), np.empty(0, np.bool_), magnitude)
        if at >= len(value):
            raise TruncatedError("the body ends before the Rice parameter")
        rice = value[at]
        if rice > MAX_RICE:
            raise CorruptError(f"a Rice parameter of {rice}; at most {MAX_RICE}")
        data = memoryview(value)[at + 1 :]
        if 8 * len(data) > k * (rice + 2) + (total >> rice) + 7:
            raise CorruptError(f"{len(data)} bytes of gaps; {k} within {total} entries take fewer")
        runs, negative = _read(data, k, rice, total)
        return Ternary(total, positions(runs, total), negative, magnitude)


def _read(data: memoryview, k: int, rice: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the runs and signs of the `k` entries that fill `data` but for the padding; refuse gaps longer than `n`."""
    octets = np.frombuffer(data, np.uint8)
    runs, negative = np.empty(k, np.int64), np.empty(k, np.bool_)
    done = at = end = (
        0  # entries; where the next stretch begins, within or before a quotient; where the last entry ended
    )
    while done < k:
        first = at // 8
        stretch = np.unpackbits(octets[first : first + STRETCH])[at % 8 :]
        zeros = np.flatnonzero(stretch == 0)
        closing = _closing_zeros(zeros, rice, stretch.size)[: k - done]
        if closing.size:
            part = slice(done, done + closing.size)
            ends = closing + (at + rice + 2)
            quotients = np.diff(ends, prepend=end) - (rice + 2)
            if quotients.max() > n >> rice:
                raise CorruptError(f"a gap is longer than the {n} entries")
            for place in range(1, rice + 1):
                quotients <<= 1
                quotients |= stretch[closing + place]
            runs[part], negative[part] = quotients, stretch[closing + (rice + 1)]
            done, at = part.stop, int(ends[-1])
            end = at
        elif first + STRETCH < octets.size:
            at += int(zeros[0]) if zeros.size else stretch.size
        else:
            raise TruncatedError(f"the gaps end before {k} of them are read")
    packing.check_padding(data, end, "gaps")
    return runs, negative


def _closing_zeros(zeros: Indices, rice: int, size: int) -> Indices:
    """Return where the quotients end of all entries that lie within a stretch of `size` bits with these `zeros`.

    After a closing zero come the remainder and the sign; the next closing zero is the first zero behind them.  That rule
    links every zero to its successor; following the links from the first zero, doubling the steps, takes few gathers.
    """
    successor = np.append(np.searchsorted(zeros, zeros + (rice + 2)), zeros.size)
    path = np.zeros(1, np.int64)
    while path[-1] < zeros.size:
        path = np.concatenate((path, successor[path]))
        successor = successor[successor]
    closing = zeros[path[path < zeros.size]]
    return closing[closing + (rice + 2) <= size]
