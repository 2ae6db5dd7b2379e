"""Streams of prefix codewords in their natural order, written and read without a loop over them.

A codeword's place is known only when those before it are read.  So the stream is cut into chunks of as many items (an item
is one codeword, or a few in a fixed order), and says how many bits each chunk has: a reader stands in all chunks at once and
reads item i of every chunk in one step.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing, varint
from fedcomp.errors import CorruptError, TruncatedError

Words = NDArray[np.uint64]

LEAST, MOST = 6, 11
"""Binary logarithms of the items in a chunk: a long chunk takes more steps to read, a short one more to describe."""
BATCH = 1 << 15
"""Items that a writer is handed at a time, whole chunks of any size."""
CHUNK_BITS = 2048
"""With this many bits, the length of a chunk takes less than 0.5 % of it."""
FEW, FEW_BITS = 1 << 16, 512
"""Of fewer items, a step for each one of a chunk costs more than the lengths of shorter chunks, less than 2 %."""

_WORD = np.uint64(64)


def head_bits(count: int, total: int) -> int:
    """Return about how many bits stand before `total` bits of `count` items."""
    chunks = -(-count // (1 << _chunk(count, total)))
    return 8 * (1 + len(varint.put(total))) + (9 * chunks + 24 if chunks > 1 else 0)


def write(batches: Iterable[tuple[Words, Words]], count: int, total: int, per_item: float = 1) -> bytes:
    """Return the stream of `count` items that have `total` bits: chunk size, total, lengths of the chunks, codewords.

    A batch is (codewords, lengths) of `BATCH` items, the last one of what is left: `per_item` of them make an item, or a
    part of one that is a power of two, where neighbours were merged; then what is left over stands alone.
    """
    chunk = _chunk(count, total)
    words = np.zeros(total // 64 + 2, np.uint64)
    sizes: list[NDArray[np.uint64]] = []
    at = 0
    for codewords, lengths in batches:
        of_chunks = np.add.reduceat(lengths, np.arange(0, lengths.size, int(per_item * (1 << chunk))))
        _scatter(words, at, *_merged(codewords, lengths))
        at += int(of_chunks.sum())
        sizes.append(of_chunks)
    if at != total:
        raise ValueError(f"codewords of {at} bits; {total} were announced")
    head = bytes([chunk]) + varint.put(total) + _put_sizes(np.concatenate(sizes)[:-1])
    return head + words.astype(">u8").tobytes()[: -(-total // 8)]


class ChunkedBitReader:
    """The chunks of a stream, read one item of every chunk in a step.

    For each (rows, chunks) of `stretches`, and each of the rows, the first so many chunks have an item: `windows` are their
    next bits, `skip` moves on.  Then `finish` refuses a stream whose chunks end elsewhere than it says.
    """

    def __init__(self, data: bytes, at: int, count: int, what: str) -> None:
        """Find the chunks of the stream of `count` > 0 items that begins at `at`; `what` names it in errors."""
        self.what = what
        if at >= len(data):
            raise TruncatedError(f"{what}: the body ends before the size of a chunk")
        if not LEAST <= data[at] <= MOST:
            raise CorruptError(f"{what}: chunks of 2^{data[at]}; they are of 2^{LEAST} to 2^{MOST}")
        self.size = 1 << data[at]
        total, at = varint.take(data, at + 1, f"the bits of {what}")
        if total < count or total > 8 * (len(data) - at):
            raise CorruptError(f"{what}: {total} bits of {count} items; {len(data) - at} bytes are left")
        chunks = -(-count // self.size)
        self.last = count - (chunks - 1) * self.size
        sizes, at = _take_sizes(data, at, chunks - 1, what)
        left = total - int(sizes.sum())
        if left < self.last:
            raise CorruptError(f"{what}: {left} bits are left for {self.last} items of the last chunk")
        self._ends = np.cumsum(np.append(sizes, left)).astype(np.uint64)
        self._places = np.concatenate((np.zeros(1, np.uint64), self._ends[:-1]))
        self.end = at + -(-total // 8)
        """Where the next field begins."""
        if len(data) < self.end:
            raise TruncatedError(f"{what}: {len(data) - at} bytes; {total} bits need {self.end - at}")
        octets = memoryview(data)[at : self.end]
        packing.check_padding(octets, total, what)
        # Two words more than there are, so that every window lies within.
        padded = np.zeros(total // 64 + 3, ">u8")
        padded.view(np.uint8)[: len(octets)] = np.frombuffer(octets, np.uint8)
        self._words = padded.astype(np.uint64)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return int(self._ends.size)

    def steps(self) -> Iterator[tuple[range, int]]:
        """Yield (rows, chunks that have an item there): the last chunk may have fewer than the others."""
        yield range(self.last), self.chunks
        if self.last < self.size and self.chunks > 1:
            yield range(self.last, self.size), self.chunks - 1

    def windows(self, chunks: int) -> Words:
        """Return the next 64 bits of the first `chunks` chunks, the first bit on top."""
        places = self._places[:chunks]
        index = (places >> np.uint64(6)).view(np.int64)
        shift = places & np.uint64(63)
        high = self._words.take(index, mode="clip")  # who runs past the end is found at the end
        np.left_shift(high, shift, out=high)
        index += 1
        low = self._words.take(index, mode="clip")
        np.subtract(_WORD, shift, out=shift)
        np.right_shift(low, shift, out=low)  # by 64 bits gives zero in numpy
        np.bitwise_or(high, low, out=high)
        return high

    def skip(self, lengths: Words) -> None:
        """Move on in the first chunks, by so many bits."""
        self._places[: lengths.size] += lengths

    def finish(self) -> None:
        """Refuse the stream unless every chunk was read to its end."""
        wrong = np.flatnonzero(self._places != self._ends)
        if wrong.size:
            raise CorruptError(f"{self.what}: chunk {wrong[0]} does not end where it should")


def _chunk(count: int, total: int) -> int:
    """Return the binary logarithm of the items in a chunk."""
    if count >> MOST >= 1 << 10:
        return MOST
    chunk = LEAST
    while chunk < MOST and (total << chunk) < (FEW_BITS if count < FEW else CHUNK_BITS) * count:
        chunk += 1
    return chunk


def _merged(codewords: Words, lengths: Words) -> tuple[Words, Words]:
    """Return neighbours merged in pairs, pairs in pairs, as long as the longest fits a word."""
    while lengths.size > 1:
        if lengths.size % 2:
            codewords, lengths = np.append(codewords, np.uint64(0)), np.append(lengths, np.uint64(0))
        both = lengths[::2] + lengths[1::2]
        if both.max() > 64:
            break
        codewords = (codewords[::2] << lengths[1::2]) | codewords[1::2]
        lengths = both
    return codewords, lengths


def _scatter(words: Words, at: int, codewords: Words, lengths: Words) -> None:
    """Put the codewords one after the other into `words`, from bit `at`."""
    ends = np.cumsum(lengths)
    places = ends - lengths
    places += np.uint64(at)
    index = (places >> np.uint64(6)).view(np.int64)
    shift = places & np.uint64(63)
    top = codewords << (_WORD - lengths)
    # Bits of different codewords never meet, so sums are unions, and np.add.at is the faster one.
    np.add.at(words, index, top >> shift)
    np.add.at(words, index + 1, top << (_WORD - shift))


def _put_sizes(sizes: NDArray[np.uint64]) -> bytes:
    """Return the bits of all chunks but the last one: the least, and at fixed width what each has more."""
    if not sizes.size:
        return b""
    least = int(sizes.min())
    width = (int(sizes.max()) - least).bit_length()
    return varint.put(least) + bytes([width]) + packing.pack(sizes - np.uint64(least), width)


def _take_sizes(data: bytes, at: int, chunks: int, what: str) -> tuple[NDArray[np.int64], int]:
    if not chunks:
        return np.empty(0, np.int64), at
    least, at = varint.take(data, at, f"the least chunk of {what}")
    if at >= len(data):
        raise TruncatedError(f"{what}: the body ends before the width of the chunks' lengths")
    width = data[at]
    end = at + 1 + -(-chunks * width // 8)
    if width > 32 or least >> 32:
        raise CorruptError(f"{what}: a chunk of {least} bits, others longer by {width} binary digits")
    if len(data) < end:
        raise TruncatedError(f"{what}: the body ends within the chunks' lengths")
    octets = memoryview(data)[at + 1 : end]
    packing.check_padding(octets, chunks * width, f"the chunks of {what}")
    more = packing.unpack(np.frombuffer(octets, np.uint8), width, chunks) if width else np.zeros(chunks, np.int64)
    more += least
    return more, end
