"""Streams of prefix codewords in their natural order, written and read without a Python loop over the codewords.

The stream is cut into chunks of the same number of codewords, and its head gives the bits of each chunk.  A reader keeps a
position in every chunk and reads codeword i of all chunks in one step.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.errors import CorruptError

Words = NDArray[np.uint64]

MIN_CHUNK_LOG, MAX_CHUNK_LOG = 6, 11
"""Binary logarithms of the codewords in a chunk: a long chunk takes more steps to read, a short one more bits to describe."""
BATCH = 1 << 15
"""Codewords that a writer gets at a time: whole chunks of any size."""
MIN_CHUNK_BITS = 2048
"""With chunks of this many bits, the lengths of the chunks take less than 0.5 % of the stream."""
SHORT_STREAM, MIN_SHORT_CHUNK_BITS = 1 << 16, 512
"""Shorter streams have shorter chunks, whose lengths take less than 2 %: long chunks would take too many steps."""

_WORD = np.uint64(64)


def head_bits(count: int, total: int) -> int:
    """Return the approximate number of bits that precede `total` bits of `count` codewords."""
    chunks = -(-count // (1 << _chunk_log(count, total)))
    return 8 * (1 + len(write_varint(total))) + (9 * chunks + 24 if chunks > 1 else 0)


def write(batches: Iterable[tuple[Words, Words]], count: int, total: int, merged: int = 1) -> bytes:
    """Return the stream of `count` codewords of `total` bits: chunk size, total, lengths of the chunks, codewords.

    A batch is (codewords, lengths) of `BATCH` codewords; the last batch has the remaining ones.  `merged`, a power of two, is
    the number of neighbours that the caller has joined into one codeword; the last codeword may join fewer.
    """
    log = _chunk_log(count, total)
    words = np.zeros(total // 64 + 2, np.uint64)
    sizes: list[NDArray[np.uint64]] = []
    offset = 0
    for codewords, lengths in batches:
        chunks = np.add.reduceat(lengths, np.arange(0, lengths.size, (1 << log) // merged))
        _scatter(words, offset, *_merged(codewords, lengths))
        offset += int(chunks.sum())
        sizes.append(chunks)
    if offset != total:
        raise ValueError(f"codewords of {offset} bits; {total} were announced")
    head = bytes([log]) + write_varint(total) + _write_sizes(np.concatenate(sizes)[:-1])
    return head + words.astype(">u8").tobytes()[: -(-total // 8)]


class ChunkedBitReader:
    """All chunks of a stream, read one codeword of every chunk in a step.

    For each (rows, chunks) of `steps` and each of the rows, the first `chunks` chunks have a codeword: `windows` returns their
    next bits, and `skip` moves on.  At the end, `finish` refuses a stream whose chunks do not have the lengths in its head.
    """

    def __init__(self, reader: ByteReader, count: int, what: str) -> None:
        self.what = what
        log, total = reader.byte(what), reader.varint(what)
        if total < count or total > 8 * reader.left:
            raise CorruptError(f"{what}: {total} bits of {count} codewords; {reader.left} bytes are left")
        # longer chunks of fewer codewords would take a step for each of few codewords
        longest = _chunk_log(count, total)
        if not MIN_CHUNK_LOG <= log <= longest:
            raise CorruptError(f"{what}: chunks of 2^{log}; 2^{MIN_CHUNK_LOG} to 2^{longest} are allowed")
        self.size = 1 << log
        chunks = -(-count // self.size)
        self.last = count - (chunks - 1) * self.size
        sizes = _read_sizes(reader, chunks - 1, what)
        rest = total - int(sizes.sum())
        if rest < self.last:
            raise CorruptError(f"{what}: {rest} bits are left for {self.last} codewords of the last chunk")
        self._ends = np.cumsum(np.append(sizes, rest)).astype(np.uint64)
        self._places = np.concatenate((np.zeros(1, np.uint64), self._ends[:-1]))
        self._octets = octets = reader.bits(total, what)
        # Two words more than needed, so that no window runs past the end.
        padded = np.zeros(total // 64 + 3, ">u8")
        padded.view(np.uint8)[: octets.size] = octets
        self._words = padded.astype(np.uint64)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return int(self._ends.size)

    def steps(self) -> Iterator[tuple[range, int]]:
        """Yield (rows, chunks that have a codeword there): the last chunk may have fewer than the others."""
        yield range(self.last), self.chunks
        if self.last < self.size and self.chunks > 1:
            yield range(self.last, self.size), self.chunks - 1

    def windows(self, chunks: int) -> Words:
        """Return the next 64 bits of the first `chunks` chunks, the first bit on top."""
        places = self._places[:chunks]
        index = (places >> np.uint64(6)).view(np.int64)
        shift = places & np.uint64(63)
        high = self._words.take(index, mode="clip")  # `finish` refuses a chunk that runs past the end
        np.left_shift(high, shift, out=high)
        index += 1
        low = self._words.take(index, mode="clip")
        np.subtract(_WORD, shift, out=shift)
        np.right_shift(low, shift, out=low)  # by 64 bits gives zero in numpy
        np.bitwise_or(high, low, out=high)
        return high

    def skip(self, lengths: Words) -> None:
        """Move forward by `lengths` bits in the first chunks."""
        self._places[: lengths.size] += lengths

    def looked_up(self, table: Words, width: int) -> Words:
        """Return the entries of `table` for all codewords, read one by one, and refuse the stream as `finish` does.

        The table has an entry for each value of `width` bits; the length of the codeword is above the 16 lowest bits.
        """
        entries: memoryview[int] = table.data
        ends: list[int] = self._ends.tolist()
        found: list[int] = []
        begin, mask = 0, (1 << width) - 1
        for chunk, end in enumerate(ends):
            left = end - begin
            octets = self._octets[begin // 8 : -(-end // 8)].tobytes()
            word = (int.from_bytes(octets) >> -end % 8 & (1 << left) - 1) << width  # zeros behind the end
            for _ in range(self.size if chunk < self.chunks - 1 else self.last):
                entry = entries[word >> left & mask]
                found.append(entry)
                left -= entry >> 16
                if left < 0:
                    break
            if left:
                raise self._wrong(chunk, end - left)
            begin = end
        return np.array(found, np.uint64)

    def finish(self) -> None:
        """Refuse the stream unless every chunk was read to its end."""
        wrong = np.flatnonzero(self._places != self._ends)
        if wrong.size:
            raise self._wrong(int(wrong[0]), int(self._places[wrong[0]]))

    def _wrong(self, chunk: int, place: int) -> CorruptError:
        return CorruptError(f"{self.what}: chunk {chunk} ends at bit {place}; {self._ends[chunk]} is needed")


def _chunk_log(count: int, total: int) -> int:
    """Return the binary logarithm of the codewords in a chunk; a reader refuses longer chunks."""
    if count >> MAX_CHUNK_LOG >= 1 << 10:
        return MAX_CHUNK_LOG
    bits = MIN_SHORT_CHUNK_BITS if count < SHORT_STREAM else MIN_CHUNK_BITS
    log = MIN_CHUNK_LOG
    while log < MAX_CHUNK_LOG and (total << log) < bits * count:
        log += 1
    return log


def _merged(codewords: Words, lengths: Words) -> tuple[Words, Words]:
    """Return neighbours merged in pairs, these again in pairs, and so on while the longest fits a word."""
    while lengths.size > 1:
        if lengths.size % 2:
            codewords, lengths = np.append(codewords, np.uint64(0)), np.append(lengths, np.uint64(0))
        both = lengths[::2] + lengths[1::2]
        if both.max() > 64:
            break
        codewords = (codewords[::2] << lengths[1::2]) | codewords[1::2]
        lengths = both
    return codewords, lengths


def _scatter(words: Words, offset: int, codewords: Words, lengths: Words) -> None:
    """Write the codewords in order into `words`, from bit `offset` on."""
    ends = np.cumsum(lengths)
    places = ends - lengths
    places += np.uint64(offset)
    index = (places >> np.uint64(6)).view(np.int64)
    shift = places & np.uint64(63)
    top = codewords << (_WORD - lengths)
    # Bits of different codewords never overlap, so a sum is a union, and np.add.at is faster.
    np.add.at(words, index, top >> shift)
    np.add.at(words, index + 1, top << (_WORD - shift))


def _write_sizes(sizes: NDArray[np.uint64]) -> bytes:
    """Return the encoded sizes of all chunks but the last one: the least size, the width of the excess, each excess."""
    if not sizes.size:
        return b""
    least = int(sizes.min())
    width = (int(sizes.max()) - least).bit_length()
    return write_varint(least) + bytes([width]) + packing.write(sizes - np.uint64(least), width)


def _read_sizes(reader: ByteReader, chunks: int, what: str) -> NDArray[np.int64]:
    if not chunks:
        return np.empty(0, np.int64)
    least, width = reader.varint(what), reader.byte(what)
    if width > 32 or least >> 32:
        raise CorruptError(f"{what}: chunks of {least} bits and up to 2^{width} more; both are below 2^32")
    octets = reader.bits(chunks * width, what)
    return least + packing.read(octets, width, chunks)
