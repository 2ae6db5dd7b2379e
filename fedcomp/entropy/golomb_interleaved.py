"""The STC paper's own order of Golomb bits: quotient, remainder and sign of one entry after the other.

Sattler et al., TNNLS 2020, section V and Algorithm 3.  Kept for faithfulness: as small as `golomb.py` on independent
positions, larger on real updates (one Rice parameter for all), and slower to decode.
"""

from dataclasses import dataclass

import numpy as np

from fedcomp.entropy import bits, varint
from fedcomp.entropy.golomb import read_head, rice_parameter
from fedcomp.entropy.golomb_positions import MAX_RICE, gaps, positions
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.symbols import Indices, Ternary


@dataclass(frozen=True, slots=True)
class GolombTernaryInterleaved:
    """Ternary symbols as the paper writes them, b* computed from k / n."""

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, b, then per entry the quotient, the remainder and the sign."""
        k = value.indices.size
        head = varint.put(value.n) + varint.put(k)
        if not k:
            return head
        rice = min(MAX_RICE, rice_parameter(k / value.n))
        runs = gaps(value.indices, value.n).ravel()[:k].astype(np.int64)
        ends = np.cumsum((runs >> rice) + (rice + 2))
        stream = np.ones(int(ends[-1]), np.uint8)
        stream[ends - (rice + 2)] = 0
        for place in range(rice):
            stream[ends - 2 - place] = runs >> place & 1
        stream[ends - 1] = value.negative
        return head + np.array(value.magnitude, "<f4").tobytes() + bytes([rice]) + np.packbits(stream).tobytes()

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
        data = value[at + 1 :]
        if 8 * len(data) > k * (rice + 2) + (total >> rice) + 7:
            raise CorruptError(f"{len(data)} bytes of gaps; {k} within {total} entries take fewer")
        stream = np.unpackbits(np.frombuffer(data, np.uint8))
        closing = _closing_zeros(np.flatnonzero(stream == 0), k, rice, stream.size)
        ends = closing + (rice + 2)
        bits.check_padding(data, int(ends[-1]), "gaps")
        runs = np.diff(ends, prepend=0) - (rice + 2)
        for place in range(1, rice + 1):
            runs <<= 1
            runs |= stream[closing + place]
        return Ternary(total, positions(runs, total), stream[ends - 1].astype(np.bool_), magnitude)


def _closing_zeros(zeros: Indices, k: int, rice: int, size: int) -> Indices:
    """Return where the `k` quotients end.

    After a closing zero come the remainder and the sign; the next closing zero is the first zero behind them.  That rule
    links every zero to its successor; following the links from the first zero, doubling the steps, takes log2(k) gathers.
    """
    beyond = np.int32(zeros.size)
    successor = np.append(np.searchsorted(zeros, zeros + (rice + 2)).astype(np.int32), beyond)
    path = np.zeros(1, np.int32)
    while path.size < k:
        path = np.concatenate((path, successor[path]))
        successor = successor[successor]
    path = path[:k]
    if path[-1] == beyond or zeros[path[-1]] + rice + 2 > size:
        raise TruncatedError(f"the gaps end before {k} of them are read")
    return zeros[path]
