"""A stream of small symbols in the fewest bytes of three modes.

The symbols are uint8, or uint16 if `bound` exceeds 256; each is below `bound` <= 512.  The reader knows their number and
`bound`; no symbols take no bytes.  A stream begins with the number of its mode and the set of the symbols that the mode tells
apart.  FIXED: as many bits each as the set needs, none for a lone symbol.  HUFFMAN: one by one, or as tuples of as many as fit
a byte.  COMMON: a set of 1, 2, 4, ... symbols at fixed width; the entries that hold others follow as positions and as a stream
of their own.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits import packing, prefix_stream
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.codes import huffman, positions, symbol_set
from fedcomp.entropy.codes.golomb_positions import CHUNK_GAPS
from fedcomp.entropy.codes.symbol_set import Symbols, SymbolSet
from fedcomp.errors import CorruptError
from fedcomp.quantized import level_type

FIXED, HUFFMAN, COMMON = 0, 2, 3
MAX_COMMON_SHARE = 0.99
"""COMMON is the slowest mode: it is taken only if it takes no more than this share of the bits."""
MIN_OVERHEAD_BITS = 20
"""Bits that HUFFMAN and COMMON need at least in addition to the symbols and their set."""

Counts = NDArray[np.int64]
"""How often each symbol below the bound occurs."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A way to write symbols of which only the counts are known: `rest` yields what follows the mode and the set."""

    mode: int
    used: SymbolSet
    bits: float
    """The expected size."""
    rest: Callable[[Symbols], Iterator[bytes]]

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream."""
        yield bytes([self.mode]) + self.used.write()
        yield from self.rest(symbols)


def write(symbols: Symbols, bound: int) -> bytes:
    """Return the stream of `symbols`, each below `bound`, in the mode with the fewest bytes."""
    return b"".join(plan(histogram(symbols, bound)).write(symbols)) if symbols.size else b""


def histogram(symbols: Symbols, bound: int) -> Counts:
    """Return how often each symbol below `bound` occurs."""
    counts = np.zeros(bound, np.int64)
    for start in range(0, symbols.size, BLOCK_ENTRIES):
        block = symbols[start : start + BLOCK_ENTRIES]
        if bound <= 8:  # comparing bytes is faster for so few symbols
            counts += [np.count_nonzero(block == symbol) for symbol in range(bound)]
        else:
            counts += np.bincount(block, minlength=bound)
    return counts


def plan(counts: Counts, *, with_common: bool = True) -> Plan:
    """Return the plan with the fewest bits for symbols that occur `counts` times, one of them at least."""
    best = fixed(counts)
    used = best.used
    if used.size == 1:
        return best
    frequencies = counts[used.used]
    entropy = -float(frequencies @ np.log2(frequencies / counts.sum()))
    # Every other plan takes the entropy and `MIN_OVERHEAD_BITS` in addition to the set of symbols.
    if int(counts.sum()) * used.width <= entropy + MIN_OVERHEAD_BITS:
        return best
    plans = [best, *(coded(counts, length) for length in sorted({1, packing.max_digits(used.size)}))]
    best = min(plans, key=lambda plan: plan.bits)
    if with_common:
        least, width = min((_common_bits(counts, width), width) for width in range(used.width))
        if least < MAX_COMMON_SHARE * best.bits:
            best = min(best, common(counts, 1 << width), key=lambda plan: plan.bits)
    return best


def fixed(counts: Counts) -> Plan:
    """Return the plan of all symbols that occur, at fixed width."""
    used = SymbolSet(np.flatnonzero(counts), counts.size)
    return Plan(FIXED, used, _head_bits(used) + int(counts.sum()) * used.width, used.write_ranks)


def coded(counts: Counts, length: int) -> Plan:
    """Return the plan of all symbols that occur, in a Huffman code of tuples of `length`, as if they were independent."""
    used = SymbolSet(np.flatnonzero(counts), counts.size)
    single = shares = counts[used.used] / counts.sum()
    for _ in range(length - 1):
        shares = np.multiply.outer(shares, single).ravel()
    count = -(-int(counts.sum()) // length)
    expected = count * shares
    total = int(expected @ huffman.best_lengths(expected))
    found = float(-np.expm1(-expected).sum())  # some tuples are too rare to occur
    described = 4 * found + (shares.size if length > 1 else 0)

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

    bits = _head_bits(used) + 8 + described + prefix_stream.head_bits(count, total) + total
    return Plan(HUFFMAN, used, bits, rest)


def common(counts: Counts, size: int) -> Plan:
    """Return the plan of the `size` most frequent symbols, a power of two, at fixed width.

    The others follow as positions and as a stream of their own; in the place of each is rank 0.
    """
    used = SymbolSet(_most_frequent(counts, size), counts.size)
    other_counts = counts.copy()
    other_counts[used.used] = 0
    others = plan(other_counts, with_common=False)

    def rest(symbols: Symbols) -> Iterator[bytes]:
        indices = _indices_outside(used, symbols)
        yield write_varint(indices.size)
        yield positions.write(indices, symbols.size)
        yield from others.write(symbols[indices])
        yield from used.write_ranks(symbols, others=True)

    # As if the positions of the others were independent.
    return Plan(COMMON, used, _head_bits(used) + 24 + _common_bits(counts, used.width, others.bits), rest)


def _indices_outside(used: SymbolSet, symbols: Symbols) -> NDArray[np.int64]:
    """Return the indices of the symbols that are not in the set."""
    hits: list[NDArray[np.int64]] = []
    for start in range(0, symbols.size, BLOCK_ENTRIES):
        block = symbols[start : start + BLOCK_ENTRIES]
        other = block != used.used[0]
        for symbol in used.used[1:]:
            other &= block != symbol
        hits.append(np.flatnonzero(other) + start)
    return np.concatenate(hits)


def _head_bits(used: SymbolSet) -> int:
    return 8 + 8 * len(used.write())


def _most_frequent(counts: Counts, size: int) -> NDArray[np.int64]:
    """Return the `size` symbols that occur most often, ascending; of equally frequent ones the lower ones."""
    return np.sort(np.argsort(-counts, kind="stable")[:size])


def _common_bits(counts: Counts, width: int, rest_bits: float = 0) -> float:
    """Return the bits of the most frequent symbols at `width`, the positions of the rest, and at least `rest_bits`.

    The rest is at most half of all symbols; with more, other modes are better.
    """
    rest = np.delete(counts, _most_frequent(counts, 1 << width))
    rest = rest[rest > 0]
    n, k = int(counts.sum()), int(rest.sum())
    if 2 * k > n:
        return math.inf
    # Whatever plan the rest gets, it takes its entropy or more, and a bit each unless all are the same.
    least = max(k, float(rest @ np.log2(k / rest))) if rest.size > 1 else 0
    return n * width + min(n, k * _gap_bits(k / n) + 8 * k / CHUNK_GAPS) + max(least, rest_bits)


def _gap_bits(p: float) -> float:
    """Return the expected bits of a gap between independent positions of density `p`: Sattler et al., 2020, section V."""
    return float(min(b - 1 / np.expm1((1 << b) * np.log1p(-p)) for b in range(32)))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(reader: ByteReader, count: int, bound: int, modes: tuple[int, ...] = (FIXED, HUFFMAN, COMMON)) -> Symbols:
    """Return the next `count` symbols, each below `bound`, in one of `modes`.

    A few bytes may stand for any number of symbols: the caller has made sure that memory may be taken for `count`.
    """
    if not count:
        return np.empty(0, level_type(bound))
    mode = reader.byte("mode of the symbols")
    if mode not in modes:
        raise CorruptError(f"symbols in mode {mode}; one of {', '.join(map(str, modes))} is needed")
    used = symbol_set.read(reader, bound)
    if mode == FIXED:
        return used.read_ranks(reader, count)
    return _read_huffman(reader, count, used) if mode == HUFFMAN else _read_common(reader, count, used)


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


def _read_common(reader: ByteReader, count: int, used: SymbolSet) -> Symbols:
    if used.size & (used.size - 1):
        raise CorruptError(f"{used.size} common symbols; a power of two is needed")
    k = reader.varint("number of other symbols")
    if 2 * k > count or k > 8 * reader.left:
        raise CorruptError(
            f"{k} other symbols of {count} with {reader.left} bytes left; at most half of all are allowed"
        )
    indices = positions.read(reader, count, k)
    rest = read(reader, k, used.bound, (FIXED, HUFFMAN))
    symbols = used.read_ranks(reader, count)
    symbols[indices] = rest
    return symbols
