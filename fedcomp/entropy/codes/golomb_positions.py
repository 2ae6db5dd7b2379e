"""Positions in Golomb-Rice codes of their gaps, split into streams that numpy decodes without a loop.

A gap g >= 1 between kept indices (the first counted from index -1) is written as r = g - 1: the quotient r >> b in unary,
ones closed by a zero, and the low b bits of r.  Golomb, IEEE Trans. Inf. Theory 12, 1966; Rice, JPL 79-22, 1979; used for
positions by Sattler et al., TNNLS 2020, section V.  All quotients come first, then all remainders: the same bits as the
paper's interleaved order (`golomb_interleaved.py`), but each stream is decoded as a whole.  Each chunk of 512 gaps has its
own b, since the tensors of a model are not equally dense.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing, unary, varint
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices

CHUNK_GAPS = 512
MAX_RICE = 31
GROUP = 64  # chunks worked on at a time: they stay in the processor's cache

Table = NDArray[np.uint32]
"""Runs r = gap - 1, uint32 (chunks, CHUNK), the last chunk filled up with zeros."""


@dataclass(frozen=True, slots=True, eq=False)
class GolombPositions:
    """The runs of `k` kept entries with each chunk's Rice parameter, `ones` the sum of the quotients: ready to be written."""

    table: Table
    k: int
    rice: NDArray[np.int64]
    ones: int

    @property
    def size(self) -> int:
        """The bytes that `write` will take."""
        quotients = -(-(self.k + self.ones) // 8)
        remainders = int(_sizes(self.rice, self.k).sum())
        return self.rice.size + len(varint.put(quotients)) + quotients + remainders

    def write(self) -> Iterator[bytes]:
        """Yield Rice parameters, length of the quotients, quotients, remainders."""
        yield self.rice.astype(np.uint8).tobytes()
        quotients = _write_quotients(self.table, self.rice, self.k, self.ones)
        yield varint.put(len(quotients))
        yield quotients
        yield from _write_remainders(self.table, self.rice, self.k)


def measure(table: Table, k: int) -> GolombPositions:
    """Return the runs of `k` kept entries with the Rice parameters that give the fewest bits."""
    return GolombPositions(table, k, *_rice_parameters(table, k))


def take(data: bytes, at: int, n: int, k: int) -> tuple[Indices, int]:
    """Return the `k` indices below `n` that lie in `data` from `at` on, and where the next field begins."""
    body = memoryview(data)
    chunks = -(-k // CHUNK_GAPS)
    rice = np.frombuffer(body[at : at + chunks], np.uint8).astype(np.int64)
    if rice.size < chunks:
        raise TruncatedError(f"{rice.size} Rice parameters; {k} entries need {chunks}")
    if rice.max() > MAX_RICE:
        raise CorruptError(f"a Rice parameter of {rice.max()}; at most {MAX_RICE}")
    size, at = varint.take(data, at + chunks, "the length of the quotients")
    if 8 * size > k + n + 7:
        raise CorruptError(f"{size} bytes of quotients; {k} gaps within {n} entries take fewer")
    quotients = unary.read(body[at : at + size], k, "quotients")
    at += size
    end = at + int(_sizes(rice, k).sum())
    if len(data) < end:
        raise TruncatedError(f"{len(data) - at} bytes of remainders; {k} entries need {end - at}")
    return positions(_read_remainders(body[at:end], rice, quotients, n), n), end


def gaps(indices: Indices, n: int) -> Table:
    """Return r = gap - 1 of the ascending `indices` of a vector of `n` entries, by chunks."""
    if n > MAX_ENTRIES:
        raise ValueError(f"a vector of {n} entries; at most {MAX_ENTRIES} can be encoded")
    k = indices.size
    runs = np.zeros(-(-k // CHUNK_GAPS) * CHUNK_GAPS, np.uint32)
    runs[0] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=runs[1:k], casting="unsafe")
    runs[1:k] -= 1
    return runs.reshape(-1, CHUNK_GAPS)


def positions(runs: NDArray[np.int64], n: int) -> Indices:
    """Return the indices that lie `runs` entries apart, in the memory of `runs`; refuse those that leave the vector."""
    runs += 1
    return ascend(runs, n)


def ascend(gaps: NDArray[np.int64], n: int) -> Indices:
    """Return the indices whose gaps are `gaps`, in the memory of `gaps`; refuse those that leave the vector."""
    indices = np.cumsum(gaps, out=gaps)
    indices -= 1
    if indices[-1] >= n:
        raise CorruptError(f"an index of {indices[-1]} in a vector of {n} entries")
    return indices


def _groups(chunks: int) -> Iterator[slice]:
    for start in range(0, chunks, GROUP):
        yield slice(start, min(start + GROUP, chunks))


def _sizes(rice: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the bytes of each chunk's remainders: whole bytes, since a full chunk of any b fills them."""
    counts = np.full(rice.size, CHUNK_GAPS)
    counts[-1] = k - CHUNK_GAPS * (rice.size - 1)
    return -(-counts * rice // 8)


def _rice_parameters(table: Table, k: int) -> tuple[NDArray[np.int64], int]:
    """Return for each chunk the b that gives the fewest bits, and the sum of all quotients then."""
    counts = np.full(len(table), CHUNK_GAPS)
    counts[-1] = k - CHUNK_GAPS * (len(table) - 1)
    # The optimum lies at the power of two next to mean * ln 2: look at it and at its neighbours.
    mean = table.sum(axis=1, dtype=np.int64) / counts
    guess = np.floor(np.log2(np.maximum(mean * math.log(2), 1))).astype(np.int64)
    choices = (guess + np.array([[0], [1], [-1]])).clip(0, MAX_RICE)
    quotients = np.empty_like(choices)
    for rows in _groups(len(table)):
        for choice, rice in enumerate(choices.astype(np.uint32)):
            np.sum(table[rows] >> rice[rows, None], axis=1, dtype=np.int64, out=quotients[choice, rows])
    best = np.argmin(quotients + choices * counts, axis=0)
    chunks = np.arange(len(table))
    return choices[best, chunks], int(quotients[best, chunks].sum())


def _write_quotients(table: Table, rice: NDArray[np.int64], k: int, ones: int) -> bytes:
    """Return each quotient as that many ones and a zero; `ones` is the sum of the quotients."""
    shifts = rice.astype(np.uint32)[:, None]
    blocks = ((table[rows] >> shifts[rows]).ravel()[: k - rows.start * CHUNK_GAPS] for rows in _groups(len(table)))
    return unary.write(blocks, k + ones)


def _write_remainders(table: Table, rice: NDArray[np.int64], k: int) -> Iterator[bytes]:
    """Yield the low bits of each chunk's runs."""
    sizes = _sizes(rice, k)
    for rows in _groups(len(table)):
        widths = set(rice[rows].tolist())
        if len(widths) == 1:
            yield packing.pack(table[rows].ravel()[: k - rows.start * CHUNK_GAPS], widths.pop())
            continue
        chunks: list[bytes] = [b""] * (rows.stop - rows.start)
        for width in widths - {0}:
            places = np.flatnonzero(rice[rows] == width)
            packed = packing.pack(table[rows][places].ravel(), width)
            length = CHUNK_GAPS * width // 8
            for order, place in enumerate(places):
                chunks[place] = packed[order * length : order * length + int(sizes[rows.start + place])]
        yield b"".join(chunks)


def _read_remainders(
    data: memoryview, rice: NDArray[np.int64], quotients: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Return the runs, in the memory of `quotients`: shifted, with the low bits put in."""
    k = quotients.size
    sizes = _sizes(rice, k)
    octets = np.zeros(int(rice.sum()) * CHUNK_GAPS // 8, np.uint8)
    octets[: len(data)] = np.frombuffer(data, np.uint8)
    packing.check_padding(
        data, int(sizes[:-1].sum()) * 8 + int(rice[-1]) * (k - CHUNK_GAPS * (rice.size - 1)), "remainders"
    )
    starts = np.cumsum(sizes) - sizes
    for rows in _groups(rice.size):
        runs = quotients[rows.start * CHUNK_GAPS : rows.stop * CHUNK_GAPS]
        widths = set(rice[rows].tolist())
        shift: Any = min(widths) if len(widths) == 1 else np.repeat(rice[rows], CHUNK_GAPS)[: runs.size]
        if (runs > n >> shift).any():
            raise CorruptError(f"a gap is longer than the {n} entries")
        runs <<= shift
        if len(widths) > 1:
            _put_low_bits(octets, starts[rows], rice[rows], runs)
        elif shift:
            packed = octets[starts[rows.start] :][: -(-runs.size // 8) * shift]
            runs |= packing.unpack(packed, shift, runs.size)
    return quotients


def _put_low_bits(
    octets: NDArray[np.uint8], starts: NDArray[np.int64], rice: NDArray[np.int64], runs: NDArray[np.int64]
) -> None:
    """Put the low bits of chunks of several widths into `runs`; those of a chunk begin at its place in `starts`."""
    for width in set(rice.tolist()) - {0}:
        places = np.flatnonzero(rice == width)
        packed = octets[starts[places, None] + np.arange(CHUNK_GAPS * width // 8)]
        low = packing.unpack(packed.ravel(), width, places.size * CHUNK_GAPS).reshape(-1, CHUNK_GAPS)
        for order, place in enumerate(places):
            chunk = runs[int(place) * CHUNK_GAPS : (int(place) + 1) * CHUNK_GAPS]
            chunk |= low[order, : chunk.size]
