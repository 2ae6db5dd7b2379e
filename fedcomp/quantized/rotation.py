"""The seeded random rotation of a vector: how it is cut into chunks, and the random signs of its entries.

An estimate from a rotated vector is unbiased as far as the rotation looks uniformly random, which random signs and a
Hadamard matrix do as long as no few entries dominate their chunk.  Two decisions follow.

* Chunks are large, 2^16 entries, and a vector below twice that is one rest, cut into the powers of two that its length is
  the sum of.  A chunk of the whole vector, as in the papers, would have to be padded to a power of two: at one bit an
  entry that is up to twice the bytes.  Larger chunks leave the processor's cache and change little.
* The rest is rotated by a seeded number of places before it is cut, so that every entry of it is equally likely to be in
  any place of any chunk: an entry that is always in a chunk of two would be biased, however many senders are averaged.
  The rest is never short (2^16 entries, or all), and is padded with zeros to whole chunks of `MIN_CHUNK`: the padding
  takes fewer bits than the scales of the smaller chunks would.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fedcomp.core import RandomStream, Vector
from fedcomp.quantized.hadamard import aligned_buffer

MAX_CHUNK = 1 << 16
"""Entries of the largest chunk: two buffers of as many stay in the processor's cache."""
MIN_CHUNK = 64
"""Entries of the smallest chunk of a rest that has as many."""
SIGNS, WIDE, SUBSET, SHIFT = range(4)
"""The random streams of a seed."""
PLUS_MINUS = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Rotation:
    """How `seed` places `n` entries in chunks.

    Whole chunks of `MAX_CHUNK` entries come first, each entry in its own place.  The rest, r entries, follows: entry j of it
    is in place (j + shift) mod r, zeros fill the places up to `padded(r)`, and `power_of_two_parts` are its chunks.
    """

    seed: int
    n: int

    @property
    def rest(self) -> int:
        """Entries of the rest: all of fewer than two chunks, otherwise those behind the last chunk but one."""
        return self.n if self.n < 2 * MAX_CHUNK else MAX_CHUNK + self.n % MAX_CHUNK

    @property
    def places(self) -> int:
        """Places of all chunks, padding included."""
        return self.n - self.rest + padded(self.rest)

    @property
    def num_chunks(self) -> int:
        """Chunks of the vector."""
        return self.places // MAX_CHUNK + (self.places % MAX_CHUNK).bit_count()

    @property
    def block_size(self) -> int:
        """Places of the largest block."""
        return min(self.places, max(MAX_CHUNK, padded(self.rest)))

    def blocks(self) -> Iterator[slice]:
        """Yield the places of each whole chunk, then those of the rest, which is several chunks."""
        whole = self.n - self.rest
        for start in range(0, whole, MAX_CHUNK):
            yield slice(start, start + MAX_CHUNK)
        yield slice(whole, self.places)

    def rotated(self, blocks: Iterable[tuple[int, Vector]], out: Vector) -> Iterator[slice]:
        """Yield the places of each block, with its entries, times their signs, at the start of `out`.

        `blocks` are (start, entries) in order, of `MAX_CHUNK` entries each, the last one of the entries left.
        """
        signs, whole = _Signs(self.seed, min(self.n, MAX_CHUNK)), self.n - self.rest
        rest = np.empty(self.rest, np.float32)
        for start, entries in blocks:
            here = out[: entries.size] if start < whole else rest[start - whole : start - whole + entries.size]
            np.multiply(entries, signs.draw(entries.size), out=here)
            if start < whole:
                yield slice(start, start + MAX_CHUNK)
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
                values *= signs.draw(MAX_CHUNK)
                yield places, values
                continue
            shift = self._shift()
            rest = np.concatenate((values[shift : self.rest], values[:shift]))
            for start in range(0, self.rest, MAX_CHUNK):
                part = rest[start : start + MAX_CHUNK]
                part *= signs.draw(part.size)
            yield slice(whole, self.n), rest

    def _shift(self) -> int:
        low, high = RandomStream(self.seed, SHIFT).words(2).tolist()
        return int(high << 32 | low) % self.rest


class _Signs:
    """Random signs of the entries of a vector, in order: +1 and -1, float32."""

    def __init__(self, seed: int, size: int) -> None:
        """Start with the first entry; at most `size` are drawn at a time, a multiple of 64 except for the last ones."""
        self._stream = RandomStream(seed, SIGNS)
        self._signs: Vector = aligned_buffer(-(-size // 8) * 8, np.float32)

    def draw(self, count: int) -> Vector:
        """Return the signs of the next `count` entries, to be read before the next ones are drawn."""
        octets = self._stream.words(-(-count // 32)).astype("<u4", copy=False).view(np.uint8)[: -(-count // 8)]
        PLUS_MINUS.take(octets, axis=0, out=self._signs[: 8 * octets.size].reshape(-1, 8), mode="clip")
        return self._signs[:count]


def padded(size: int) -> int:
    """Return the places of a rest of `size` entries: whole chunks of `MIN_CHUNK`, or a power of two below that."""
    return -(-size // MIN_CHUNK) * MIN_CHUNK if size >= MIN_CHUNK else 1 << (size - 1).bit_length()


def power_of_two_parts(size: int) -> Iterator[slice]:
    """Yield consecutive parts of `MAX_CHUNK`, then of the powers of two that the rest is the sum of, largest first."""
    start = 0
    while start < size:
        part = min(MAX_CHUNK, 1 << (size - start).bit_length() - 1)
        yield slice(start, start + part)
        start += part
