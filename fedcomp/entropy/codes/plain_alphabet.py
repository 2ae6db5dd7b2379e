"""A stream of small symbols in the smaller of two modes.

The symbols are uint8, or uint16 if their bound exceeds 256; each is below the bound, which is at most 512.  The reader knows
their number and the bound.  An empty stream takes no bytes.  A stream begins with the number of its mode and the set of the
symbols that occur.  FIXED: each symbol takes the bits that the set needs, none for a lone symbol.  HUFFMAN: symbols one by
one, or in tuples of as many as fit a byte.  `alphabet.py` adds a third mode.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, block_slices
from fedcomp.entropy.bits import packing, prefix_stream
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import huffman, symbol_set
from fedcomp.entropy.codes.symbol_set import Symbols, SymbolSet
from fedcomp.errors import CorruptError
from fedcomp.quantized import level_type

FIXED, HUFFMAN = 0, 2
MIN_OVERHEAD_BITS = 20
"""Bits that any mode but FIXED needs at least in addition to the symbols and their set."""
MAX_PAIRED = 64
"""Symbols below this bound, in full blocks, are counted in pairs: more symbols have too many pairs."""

Counts = NDArray[np.int64]
"""How often each symbol below the bound occurs."""
ReadMode = Callable[[ByteReader, int, SymbolSet], Symbols]
"""Reads a number of symbols of a set, which a stream holds in one mode."""


@dataclass(frozen=True, slots=True, eq=False)
class SymbolWriter:
    """A way to write symbols of which only the counts are known: `rest` yields the bytes after the mode and the set."""

    mode: int
    used: SymbolSet
    bits: float
    """The expected size."""
    rest: Callable[[Symbols], Iterator[bytes]]

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream."""
        yield bytes([self.mode]) + self.used.write()
        yield from self.rest(symbols)


def histogram(symbols: Symbols, bound: int) -> Counts:
    """Return how often each symbol below `bound` occurs."""
    counts = np.zeros(bound, np.int64)
    for part in block_slices(symbols.size):
        block = symbols[part]
        if bound <= 8:  # comparing bytes is faster for so few symbols
            counts += [np.count_nonzero(block == symbol) for symbol in range(bound)]
        elif bound <= MAX_PAIRED and block.size == BLOCK_ENTRIES:  # half as many pairs, each a "<u2"
            pairs = np.bincount(block.view("<u2"), minlength=256 * bound).reshape(bound, 256)
            counts += pairs.sum(axis=0)[:bound] + pairs.sum(axis=1)
        else:
            counts += np.bincount(block, minlength=bound)
    return counts


def plan(counts: Counts) -> SymbolWriter:
    """Return the plan with the fewest bits for symbols that occur `counts` times; at least one symbol occurs."""
    best = fixed(counts)
    used = best.used
    entropy, length = entropy_bits(counts), packing.max_digits(used.size)
    if used.size == 1 or int(counts.sum()) * used.width <= entropy + MIN_OVERHEAD_BITS:
        return best
    best = min(best, coded(counts, 1), key=lambda plan: plan.bits)
    if length == 1 or best.bits <= _coded_bits(used, length, _expected(counts, used, length), int(entropy)):
        return best  # no code of tuples takes fewer bits than their entropy
    return min(best, coded(counts, length), key=lambda plan: plan.bits)


def entropy_bits(counts: Counts) -> float:
    """Return the entropy in bits of independent symbols that occur `counts` times."""
    frequencies = counts[counts > 0]
    return -float(frequencies @ np.log2(frequencies / frequencies.sum()))


def fixed(counts: Counts) -> SymbolWriter:
    """Return the plan of all symbols that occur, at fixed width."""
    used = SymbolSet(np.flatnonzero(counts), counts.size)
    return SymbolWriter(FIXED, used, head_bits(used) + int(counts.sum()) * used.width, used.write_ranks)


def coded(counts: Counts, length: int) -> SymbolWriter:
    """Return the plan of all symbols that occur, in a Huffman code of tuples of `length` independent symbols."""
    used = SymbolSet(np.flatnonzero(counts), counts.size)
    expected = _expected(counts, used, length)
    total = int(huffman.least_bits(expected))

    def rest(symbols: Symbols) -> Iterator[bytes]:
        yield bytes([length])
        inner, own = used, counts[used.used]
        if length > 1:
            blocks = used.ranks(symbols, length * packing.TUPLES)
            symbols = np.concatenate([packing.join_digits(block, used.size, length) for block in blocks])
            of_all = histogram(symbols, used.size**length)
            inner = SymbolSet(np.flatnonzero(of_all), of_all.size)
            own = of_all[inner.used]
            yield inner.write()
        yield huffman.write(inner.ranks(symbols, prefix_stream.BATCH), huffman.best_lengths(own), own)

    return SymbolWriter(HUFFMAN, used, _coded_bits(used, length, expected, total), rest)


def _expected(counts: Counts, used: SymbolSet, length: int) -> NDArray[np.float64]:
    """Return how often each tuple of `length` symbols occurs, if they are independent."""
    single: NDArray[np.float64] = counts[used.used] / counts.sum()
    shares = single
    for _ in range(length - 1):
        shares = np.multiply.outer(shares, single).ravel()
    return shares * -(-int(counts.sum()) // length)


def _coded_bits(used: SymbolSet, length: int, expected: NDArray[np.float64], total: int) -> float:
    """Return the bits of a stream in Huffman code whose codewords take `total` bits."""
    found = float(-np.expm1(-expected).sum())  # some tuples are too rare to occur
    described = 4 * found + (expected.size if length > 1 else 0)
    return head_bits(used) + 8 + described + prefix_stream.head_bits(round(expected.sum()), total) + total


def head_bits(used: SymbolSet) -> int:
    """Return the bits of the mode and of the set."""
    return 8 + 8 * len(used.write())


def read(reader: ByteReader, count: int, bound: int, others: Mapping[int, ReadMode] | None = None) -> Symbols:
    """Return the next `count` symbols, each below `bound`; `others` are further modes that are allowed here.

    A few bytes may represent any number of symbols: the caller must have checked that memory may be taken for `count`.
    """
    if not count:
        return np.empty(0, level_type(bound))
    modes = {FIXED: _read_fixed, HUFFMAN: _read_huffman, **(others or {})}
    mode = reader.byte("mode of the symbols")
    if mode not in modes:
        raise CorruptError(f"symbols in mode {mode}; one of {', '.join(map(str, modes))} is needed")
    return modes[mode](reader, count, symbol_set.read(reader, bound))


def _read_fixed(reader: ByteReader, count: int, used: SymbolSet) -> Symbols:
    return used.read_ranks(reader, count)


def _read_huffman(reader: ByteReader, count: int, used: SymbolSet) -> Symbols:
    length, longest = reader.byte("length of the tuples"), packing.max_digits(used.size)
    if length not in (1, longest):
        raise CorruptError(f"tuples of {length} from a set of {used.size} symbols; 1 or {longest} is needed")
    if length == 1:
        return huffman.read(reader, count, used.used.astype(level_type(used.bound)))
    inner = symbol_set.read(reader, used.size**length)
    joined = huffman.read(reader, -(-count // length), inner.used.astype(np.uint8))
    symbols = np.empty(count, level_type(used.bound))
    for part, ranks in packing.split_digits(joined, used.size, length, count):
        symbols[part] = ranks
    return used.symbols(symbols)
