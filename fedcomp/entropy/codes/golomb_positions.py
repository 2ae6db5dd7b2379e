"""Positions as gaps g >= 1 from one kept index to the next, the first gap from index -1, in Golomb-Rice codes.

The run r = g - 1 is written as its quotient r >> b in unary and the low b bits of r.  Golomb, IEEE Trans. Inf. Theory 12,
1966; Rice, JPL 79-22, 1979; used for positions by Sattler et al., TNNLS 2020, section V.  All quotients come first, then all
remainders: the same bits as the paper's interleaved order (`bodies/golomb.py`), but each stream is decoded as a whole.
Each chunk of 512 gaps has its own b, since the tensors of a model are not equally dense.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import block_slices
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader, Octets, write_varint
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError
from fedcomp.quantized import Indices

CHUNK_GAPS = 512
"""Gaps that share a Rice parameter."""

Runs = NDArray[np.uint32]
"""r = gap - 1 of each kept entry, uint32 (chunks, CHUNK_GAPS), with the last chunk padded with zeros."""
MAX_RICE = 31
GROUP_CHUNKS = 64
"""Chunks worked on at a time: they stay in the processor's cache."""


def runs_of(indices: Indices, n: int) -> Runs:
    """Return the runs of the ascending `indices`, at least one, of a vector of `n` entries."""
    if n > MAX_ENTRIES:
        raise ValueError(f"a vector of {n} entries; at most {MAX_ENTRIES} can be encoded")
    k = indices.size
    runs = np.zeros(-(-k // CHUNK_GAPS) * CHUNK_GAPS, np.uint32)
    runs[0] = indices[0]
    np.subtract(indices[1:], indices[:-1], out=runs[1:k], casting="unsafe")
    runs[1:k] -= 1
    return runs.reshape(-1, CHUNK_GAPS)


def indices_of(gaps: NDArray[np.int64], n: int) -> Indices:
    """Return the indices with these `gaps`, in the memory of `gaps`; refuse indices outside a vector of `n` entries."""
    indices = np.cumsum(gaps, out=gaps)
    indices -= 1
    if indices[-1] >= n:
        raise CorruptError(f"an index of {indices[-1]} in a vector of {n} entries")
    return indices


@dataclass(frozen=True, slots=True, eq=False)
class GolombPositions:
    """The runs of `k` kept entries with the Rice parameter of each chunk; `ones` is the sum of the quotients."""

    runs: Runs
    k: int
    rice: NDArray[np.int64]
    ones: int

    @property
    def size(self) -> int:
        """The bytes that `write` takes."""
        quotients = -(-(self.k + self.ones) // 8)
        remainders = int(_remainder_sizes(self.rice, self.k).sum())
        return self.rice.size + len(write_varint(quotients)) + quotients + remainders

    def write(self) -> Iterator[bytes]:
        """Yield the Rice parameters, the length of the quotients, the quotients, the remainders."""
        shifts = self.rice.astype(np.uint32)[:, None]
        groups = list(block_slices(self.rice.size, GROUP_CHUNKS))
        blocks = ((self.runs[rows] >> shifts[rows]).ravel()[: self.k - rows.start * CHUNK_GAPS] for rows in groups)
        quotients = packing.write_unary(blocks, self.k + self.ones)
        yield self.rice.astype(np.uint8).tobytes()
        yield write_varint(len(quotients))
        yield quotients
        sizes = _remainder_sizes(self.rice, self.k)
        for rows in groups:
            yield self._remainders(rows)[: int(sizes[rows].sum())]

    def _remainders(self, rows: slice) -> bytes:
        """Return the low bits of the runs of these chunks, and of the padding of the last chunk."""
        rice = self.rice[rows]
        widths = set(rice.tolist())
        if len(widths) == 1:
            return packing.write(self.runs[rows].ravel(), widths.pop())
        chunks = [b""] * rice.size
        for width in widths - {0}:
            places = np.flatnonzero(rice == width)
            packed, length = packing.write(self.runs[rows][places].ravel(), width), CHUNK_GAPS * width // 8
            for order, place in enumerate(places.tolist()):
                chunks[place] = packed[order * length : (order + 1) * length]
        return b"".join(chunks)


def measure(runs: Runs, k: int) -> GolombPositions:
    """Return the runs of `k` kept entries with the Rice parameters that give the fewest bits."""
    counts = np.full(len(runs), CHUNK_GAPS)
    counts[-1] = k - CHUNK_GAPS * (len(runs) - 1)
    # The best b is next to log2(mean * ln 2): try it and its neighbours.
    mean = runs.sum(axis=1, dtype=np.int64) / counts
    guess = np.floor(np.log2(np.maximum(mean * math.log(2), 1))).astype(np.int64)
    choices = (guess + np.array([[0], [1], [-1]])).clip(0, MAX_RICE)
    quotients = np.empty_like(choices)
    for rows in block_slices(len(runs), GROUP_CHUNKS):
        for choice, rice in enumerate(choices.astype(np.uint32)):
            np.sum(runs[rows] >> rice[rows, None], axis=1, dtype=np.int64, out=quotients[choice, rows])
    best = np.argmin(quotients + choices * counts, axis=0)
    chunks = np.arange(len(runs))
    return GolombPositions(runs, k, choices[best, chunks], int(quotients[best, chunks].sum()))


def read(reader: ByteReader, n: int, k: int) -> Indices:
    """Return the next `k` indices below `n`."""
    rice = reader.take(-(-k // CHUNK_GAPS), "Rice parameters").astype(np.int64)
    if rice.max() > MAX_RICE:
        raise CorruptError(f"a Rice parameter of {rice.max()}; at most {MAX_RICE} is allowed")
    size = reader.varint("length of the quotients")
    if 8 * size > k + n + 7:
        raise CorruptError(f"{size} bytes of quotients; {k} gaps within {n} entries take fewer")
    runs = packing.read_unary(reader.take(size, "quotients"), k, "quotients")
    _read_remainders(reader, rice, runs, n)
    runs += 1
    return indices_of(runs, n)


def _read_remainders(reader: ByteReader, rice: NDArray[np.int64], runs: NDArray[np.int64], n: int) -> None:
    """Turn quotients into `runs`: shift them, and add the low bits."""
    sizes = _remainder_sizes(rice, runs.size)
    if 8 * int(sizes.sum()) > (most := max_remainder_bits(n, runs.size)):
        raise CorruptError(f"{sizes.sum()} bytes of remainders; {runs.size} gaps within {n} entries take {most} bits")
    octets = np.zeros(int(rice.sum()) * CHUNK_GAPS // 8, np.uint8)
    last = int(rice[-1]) * (runs.size - CHUNK_GAPS * (rice.size - 1))
    found = reader.bits(int(sizes[:-1].sum()) * 8 + last, "remainders")
    octets[: found.size] = found
    starts = np.cumsum(sizes) - sizes
    for rows in block_slices(rice.size, GROUP_CHUNKS):
        group = runs[rows.start * CHUNK_GAPS : rows.stop * CHUNK_GAPS]
        widths = set(rice[rows].tolist())
        shift: Any = min(widths) if len(widths) == 1 else np.repeat(rice[rows], CHUNK_GAPS)[: group.size]
        if (group > n >> shift).any():
            raise CorruptError(f"a gap is longer than the {n} entries")
        group <<= shift
        if len(widths) > 1:
            _add_low_bits(octets, starts[rows], rice[rows], group)
        elif shift:
            packed = octets[starts[rows.start] :][: -(-group.size // 8) * shift]
            group |= packing.read(packed, shift, group.size)


def max_remainder_bits(n: int, k: int) -> int:
    """Return the most bits that remainders of `k` gaps within `n` entries take with the best Rice parameters, plus padding.

    The best parameter of a chunk is at most 1 above the logarithm of its mean gap, and the logarithm is concave.  Padding
    takes up to 8 bits.
    """
    return math.floor(k * (1 + math.log2(n / k))) + 8


def _add_low_bits(octets: Octets, starts: NDArray[np.int64], rice: NDArray[np.int64], runs: NDArray[np.int64]) -> None:
    """Add the low bits of chunks of several widths to `runs`; `starts` says where the bits of each chunk begin."""
    for width in set(rice.tolist()) - {0}:
        places = np.flatnonzero(rice == width)
        packed = octets[starts[places, None] + np.arange(CHUNK_GAPS * width // 8)]
        low = packing.read(packed.ravel(), width, places.size * CHUNK_GAPS).reshape(-1, CHUNK_GAPS)
        for order, place in enumerate(places.tolist()):
            chunk = runs[place * CHUNK_GAPS : (place + 1) * CHUNK_GAPS]
            chunk |= low[order, : chunk.size]


def _remainder_sizes(rice: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the bytes of the remainders of each chunk: whole bytes, since a full chunk of any b fills them."""
    counts = np.full(rice.size, CHUNK_GAPS)
    counts[-1] = k - CHUNK_GAPS * (rice.size - 1)
    return -(-counts * rice // 8)
