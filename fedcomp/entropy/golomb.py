"""Golomb-Rice codes of gaps between kept entries, split into streams that numpy decodes without a loop.

A gap g >= 1 between kept indices (the first counted from index -1) is written as r = g - 1: the quotient r >> b in unary,
ones closed by a zero, and the low b bits of r.  Golomb, IEEE Trans. Inf. Theory 12, 1966; Rice, JPL 79-22, 1979; used for
positions by Sattler et al., TNNLS 2020, section V.  All quotients come first, then all remainders, then all signs: the same
bits as the paper's interleaved order (`golomb_interleaved.py`), but each stream is decoded as a whole.  Each chunk of 512
gaps has its own b, since the tensors of a model are not equally dense.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy import MAX_ENTRIES, bits, varint
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.symbols import Indices, Ternary

CHUNK = 512
MAX_RICE = 31
GROUP = 64  # chunks worked on at a time: they stay in the processor's cache

Table = NDArray[np.uint32]
"""Runs r = gap - 1, uint32 (chunks, CHUNK), the last chunk filled up with zeros."""


@dataclass(frozen=True, slots=True)
class GolombTernary:
    """Ternary symbols in split streams, about 1.01 times the entropy of independent positions and signs, or less."""

    def encode(self, value: Ternary, /) -> bytes:
        """Return the body: n, k, magnitude, Rice parameters, length of the quotients, quotients, remainders, signs."""
        k = value.indices.size
        head = varint.put(value.n) + varint.put(k)
        if not k:
            return head
        table = gaps(value.indices, value.n)
        rice, ones = _rice_parameters(table, k)
        unary = _write_quotients(table, rice, k, ones)
        return b"".join(
            (
                head,
                np.array(value.magnitude, "<f4").tobytes(),
                rice.astype(np.uint8).tobytes(),
                varint.put(len(unary)),
                unary,
                *_write_remainders(table, rice, k),
                np.packbits(value.negative).tobytes(),
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> Ternary:
        """Return the symbols."""
        body = memoryview(value)
        total, k, magnitude, at = read_head(value, n)
        if not k:
            return Ternary(total, np.empty(0, np.int64), np.empty(0, np.bool_), magnitude)
        chunks = -(-k // CHUNK)
        rice = np.frombuffer(body[at : at + chunks], np.uint8).astype(np.int64)
        if rice.size < chunks:
            raise TruncatedError(f"{rice.size} Rice parameters; {k} entries need {chunks}")
        if rice.max() > MAX_RICE:
            raise CorruptError(f"a Rice parameter of {rice.max()}; at most {MAX_RICE}")
        size, at = varint.take(value, at + chunks, "the length of the quotients")
        if 8 * size > k + total + 7:
            raise CorruptError(f"{size} bytes of quotients; {k} gaps within {total} entries take fewer")
        quotients = _read_quotients(body[at : at + size], k)
        at += size
        signs_at = at + int(_sizes(rice, k).sum())
        negative = bits.flags(bytes(body[signs_at:]), k, "signs")
        runs = _read_remainders(body[at:signs_at], rice, quotients, total)
        return Ternary(total, positions(runs, total), negative, magnitude)


def rice_parameter(density: float) -> int:
    """Return b* for independent positions kept with probability `density`.

    b* = 1 + floor(log2(ln(phi - 1) / ln(1 - p))), phi the golden ratio; Sattler et al., TNNLS 2020, section V.
    """
    if density >= 1:
        return 0
    phi = (math.sqrt(5) + 1) / 2
    return max(0, 1 + math.floor(math.log2(math.log(phi - 1) / math.log1p(-density))))


def gaps(indices: Indices, n: int) -> Table:
    """Return r = gap - 1 of the ascending `indices` of a vector of `n` entries, by chunks."""
    if n > MAX_ENTRIES:
        raise ValueError(f"a vector of {n} entries; at most {MAX_ENTRIES} can be encoded")
    k = indices.size
    runs = np.zeros(-(-k // CHUNK) * CHUNK, np.uint32)
    runs[0] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=runs[1:k], casting="unsafe")
    runs[1:k] -= 1
    return runs.reshape(-1, CHUNK)


def positions(runs: NDArray[np.int64], n: int) -> Indices:
    """Return the indices that lie `runs` entries apart, in the memory of `runs`; refuse those that leave the vector."""
    runs += 1
    indices = np.cumsum(runs, out=runs)
    indices -= 1
    if indices[-1] >= n:
        raise CorruptError(f"an index of {indices[-1]} in a vector of {n} entries")
    return indices


def read_head(data: bytes, n: int | None) -> tuple[int, int, np.float32, int]:
    """Return n, k, magnitude and where the next field begins; refuse what cannot be."""
    total, at = varint.take(data, 0, "n")
    if n is not None and total != n:
        raise CorruptError(f"a body for {total} entries; {n} are needed")
    if total > MAX_ENTRIES:
        raise CorruptError(f"a body that claims {total} entries; at most {MAX_ENTRIES}")
    k, at = varint.take(data, at, "k")
    if k > total or k > 8 * len(data):
        raise CorruptError(f"{k} kept entries of {total} in {len(data)} bytes")
    if k == 0:
        if at != len(data):
            raise CorruptError(f"{len(data) - at} bytes follow an empty selection")
        return total, 0, np.float32(0), at
    if len(data) < at + 4:
        raise TruncatedError("the body ends within the magnitude")
    magnitude = np.float32(np.frombuffer(data, "<f4", 1, at)[0])
    if not (np.isfinite(magnitude) and magnitude > 0):
        raise CorruptError(f"a magnitude of {magnitude}; it is finite and above 0")
    return total, k, magnitude, at + 4


def _groups(chunks: int) -> Iterator[slice]:
    for start in range(0, chunks, GROUP):
        yield slice(start, min(start + GROUP, chunks))


def _sizes(rice: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the bytes of each chunk's remainders: whole bytes, since a full chunk of any b fills them."""
    counts = np.full(rice.size, CHUNK)
    counts[-1] = k - CHUNK * (rice.size - 1)
    return -(-counts * rice // 8)


def _rice_parameters(table: Table, k: int) -> tuple[NDArray[np.int64], int]:
    """Return for each chunk the b that gives the fewest bits, and the sum of all quotients then."""
    counts = np.full(len(table), CHUNK)
    counts[-1] = k - CHUNK * (len(table) - 1)
    # The optimum lies at the power of two next to mean * ln 2: look at it and at its neighbours.
    mean = table.sum(axis=1, dtype=np.int64) / counts
    guess = np.floor(np.log2(np.maximum(mean * math.log(2), 1))).astype(np.int64)
    choices = np.clip(guess + np.array([[0], [1], [-1]]), 0, MAX_RICE)
    quotients = np.empty_like(choices)
    for rows in _groups(len(table)):
        for choice, rice in enumerate(choices.astype(np.uint32)):
            np.sum(table[rows] >> rice[rows, None], axis=1, dtype=np.int64, out=quotients[choice, rows])
    best = np.argmin(quotients + choices * counts, axis=0)
    chunks = np.arange(len(table))
    return choices[best, chunks], int(quotients[best, chunks].sum())


def _write_quotients(table: Table, rice: NDArray[np.int64], k: int, ones: int) -> bytes:
    """Return each quotient as that many ones and a zero; `ones` is the sum of the quotients."""
    stream = np.ones(k + ones, np.uint8)
    shifts = rice.astype(np.uint32)[:, None]
    start = 0
    for rows in _groups(len(table)):
        ends = (table[rows] >> shifts[rows]).ravel()[: k - rows.start * CHUNK].astype(np.int64)
        ends += 1
        ends = np.cumsum(ends, out=ends)
        ends += start - 1
        stream[ends] = 0
        start = int(ends[-1]) + 1
    return np.packbits(stream).tobytes()


def _read_quotients(data: memoryview, k: int) -> NDArray[np.int64]:
    """Return the `k` quotients that fill `data` but for the padding."""
    ends = np.unpackbits(~np.frombuffer(data, np.uint8)).view(np.bool_).nonzero()[0]
    if ends.size < k:
        raise TruncatedError(f"{ends.size} quotients; {k} are needed")
    used = int(ends[k - 1]) + 1
    if len(data) != -(-used // 8) or ends.size - k != 8 * len(data) - used:
        raise CorruptError(f"{len(data)} bytes of quotients; {k} of them end after {used} bits, and zeros follow")
    quotients = np.empty(k, np.int64)
    quotients[0] = ends[0]
    np.subtract(ends[1:k], ends[: k - 1], out=quotients[1:])
    quotients[1:] -= 1
    return quotients


def _write_remainders(table: Table, rice: NDArray[np.int64], k: int) -> Iterator[bytes]:
    """Yield the low bits of each chunk's runs."""
    sizes = _sizes(rice, k)
    for rows in _groups(len(table)):
        chunks: list[bytes] = [b""] * (rows.stop - rows.start)
        for width in np.unique(rice[rows]):
            if width:
                places = np.flatnonzero(rice[rows] == width)
                packed = bits.pack(table[rows][places].ravel(), int(width))
                length = CHUNK * int(width) // 8
                for order, place in enumerate(places):
                    chunks[place] = packed[order * length : order * length + int(sizes[rows.start + place])]
        yield b"".join(chunks)


def _read_remainders(
    data: memoryview, rice: NDArray[np.int64], quotients: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Return the runs, in the memory of `quotients`: shifted, with the low bits put in."""
    k = quotients.size
    sizes = _sizes(rice, k)
    octets = np.zeros(int(rice.sum()) * CHUNK // 8, np.uint8)
    octets[: len(data)] = np.frombuffer(data, np.uint8)
    bits.check_padding(data, int(sizes[:-1].sum()) * 8 + int(rice[-1]) * (k - CHUNK * (rice.size - 1)), "remainders")
    starts = np.cumsum(sizes) - sizes
    for rows in _groups(rice.size):
        part = slice(rows.start * CHUNK, min(rows.stop * CHUNK, k))
        width_of = np.repeat(rice[rows], CHUNK)[: part.stop - part.start]
        if (quotients[part] > n >> width_of).any():
            raise CorruptError(f"a gap is longer than the {n} entries")
        quotients[part] <<= width_of
        for width in np.unique(rice[rows]):
            if width:
                places = np.flatnonzero(rice[rows] == width)
                length = CHUNK * int(width) // 8
                packed = octets[starts[rows][places, None] + np.arange(length)]
                low = bits.unpack(packed.ravel(), int(width), places.size * CHUNK).reshape(-1, CHUNK)
                if places.size == rows.stop - rows.start:
                    quotients[part] |= low.ravel()[: part.stop - part.start]
                else:
                    for order, place in enumerate(places):
                        entry = part.start + int(place) * CHUNK
                        quotients[entry : entry + CHUNK] |= low[order, : k - entry]
    return quotients
