"""The random rotation that a seed gives: where each entry of a vector is placed, in which chunk, and with which sign.

Estimates from a rotated vector are unbiased if the rotation is uniformly random.  Random signs and a Hadamard matrix come
close to that unless a few entries dominate their chunk.  So chunks are large: up to 2^16 entries, as many as fit the
processor's cache.  (One matrix for the whole vector, as in the papers, would be padded to up to twice the bytes.)

The rest has a chunk or more, unless the vector is shorter.  It is padded with zeros to a multiple of 64 entries: at one
bit an entry, the zeros take fewer bytes than the scales of smaller chunks would.  Then it is cut into chunks whose lengths are
the powers of two that add up to its length.  Some of these chunks are small, so the rest is first shifted cyclically by a
random number of places: a given entry is rarely in a small chunk.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import RandomStream, Vector, block_slices
from fedcomp.quantized.hadamard import aligned_buffer

MAX_CHUNK = 1 << 16
"""Entries of the largest chunk: two buffers of this size fit the processor's cache."""
MIN_CHUNK = 64
"""Entries of the smallest chunk, unless the whole vector is shorter."""
SIGNS, WIDE, SUBSET, SHIFT, ROUNDING, SPREAD_SIGNS = range(6)
"""The random streams of a seed."""
PLUS_MINUS = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Rotation:
    """How `seed` places `n` entries in chunks of `chunk` entries, a power of two from `MIN_CHUNK` to `MAX_CHUNK`.

    Whole chunks come first, each entry in the place of its index.  The rest of r entries follows: entry j of the rest is in its
    place (j + shift) mod r.  Zeros fill the places up to `padded(r)`, and `power_of_two_parts` are the chunks.
    """

    seed: int
    n: int
    chunk: int = MAX_CHUNK

    @property
    def rest(self) -> int:
        """Entries of the rest: all n below two chunks, otherwise a chunk and what is left of n."""
        return self.n if self.n < 2 * self.chunk else self.chunk + self.n % self.chunk

    @property
    def places(self) -> int:
        """Places of all chunks, padding included."""
        return self.n - self.rest + padded(self.rest)

    @property
    def num_chunks(self) -> int:
        """Chunks of the vector."""
        return self.places // self.chunk + (self.places % self.chunk).bit_count()

    @property
    def block_size(self) -> int:
        """Places of the largest block."""
        return min(self.places, max(MAX_CHUNK, padded(self.rest)))

    def blocks(self) -> Iterator[slice]:
        """Yield the places of whole chunks, up to `MAX_CHUNK` at a time, then those of the rest: one chunk or more."""
        whole = self.n - self.rest
        yield from block_slices(whole, MAX_CHUNK)
        yield slice(whole, self.places)

    def chunk_sizes(self) -> NDArray[np.int64]:
        """Return the number of places of each chunk."""
        rest = [part.stop - part.start for part in power_of_two_parts(padded(self.rest), self.chunk)]
        return np.array([self.chunk] * ((self.n - self.rest) // self.chunk) + rest)

    def batches(self, block: slice) -> Iterator[tuple[slice, int]]:
        """Yield (part of the block, number of chunks of one size in it)."""
        size = block.stop - block.start
        if block.start < self.n - self.rest:
            yield slice(0, size), size // self.chunk
        else:
            yield from ((part, 1) for part in power_of_two_parts(size, self.chunk))

    def rotated(self, blocks: Iterable[tuple[int, Vector]], out: Vector) -> Iterator[slice]:
        """Write the entries of each block, times their signs, to the start of `out`; yield the places of the block.

        `blocks` are (start, entries) in order, of `MAX_CHUNK` entries each; the last one may be shorter.
        """
        signs, whole = _Signs(self.seed, min(self.n, MAX_CHUNK)), self.n - self.rest
        rest = np.empty(self.rest, np.float32)
        for start, entries in blocks:
            here, factors = max(0, min(entries.size, whole - start)), signs.draw(entries.size)
            late = rest[start + here - whole : start + entries.size - whole] if here < entries.size else rest[:0]
            np.multiply(entries[here:], factors[here:], out=late)
            if here:
                np.multiply(entries[:here], factors[:here], out=out[:here])
                yield slice(start, start + here)
        shift = self._shift()
        out[shift : self.rest] = rest[: self.rest - shift]
        out[:shift] = rest[self.rest - shift :]
        out[self.rest : padded(self.rest)] = 0
        yield slice(whole, self.places)

    def restored(self, blocks: Iterable[tuple[slice, Vector]]) -> Iterator[tuple[slice, Vector]]:
        """Yield (part, its entries) in order, from (places, values) of each block; overwrite the values."""
        signs, whole = _Signs(self.seed, min(self.n, MAX_CHUNK)), self.n - self.rest
        for places, values in blocks:
            if places.start < whole:
                values *= signs.draw(values.size)
                yield places, values
                continue
            shift = self._shift()
            rest = np.concatenate((values[shift : self.rest], values[:shift]))
            for part in block_slices(self.rest, MAX_CHUNK):
                rest[part] *= signs.draw(part.stop - part.start)
            yield slice(whole, self.n), rest

    def spread_signs(self) -> Vector:
        """Return the signs of `spread` for a chunk; a shorter one has the first of them."""
        return _Signs(self.seed, self.chunk, SPREAD_SIGNS).draw(self.chunk)

    def _shift(self) -> int:
        low, high = RandomStream(self.seed, SHIFT).words(2).tolist()
        return int(high << 32 | low) % self.rest


class _Signs:
    """Random signs of the entries of a vector, in order: +1 and -1, float32."""

    def __init__(self, seed: int, size: int, stream: int = SIGNS) -> None:
        self._stream = RandomStream(seed, stream)
        self._signs: Vector = aligned_buffer(-(-size // 8) * 8, np.float32)

    def draw(self, count: int) -> Vector:
        """Return the signs of the next `count` entries, to be read before the next ones are drawn."""
        octets = self._stream.words(-(-count // 32)).astype("<u4", copy=False).view(np.uint8)[: -(-count // 8)]
        PLUS_MINUS.take(octets, axis=0, out=self._signs[: 8 * octets.size].reshape(-1, 8), mode="clip")
        return self._signs[:count]


def padded(size: int) -> int:
    """Return the places of a rest of `size` entries: whole chunks of `MIN_CHUNK`, or a power of two below that."""
    return -(-size // MIN_CHUNK) * MIN_CHUNK if size >= MIN_CHUNK else 1 << (size - 1).bit_length()


def power_of_two_parts(size: int, largest: int = MAX_CHUNK) -> Iterator[slice]:
    """Yield consecutive parts of `largest`, then of the powers of two that add up to the rest, largest first."""
    start = 0
    while start < size:
        part = min(largest, 1 << (size - start).bit_length() - 1)
        yield slice(start, start + part)
        start += part
