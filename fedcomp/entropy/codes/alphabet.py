"""A stream of small symbols in the fewest bytes of several codes: `put` writes it, `take` reads it.

``put(symbols, bound)`` returns the bytes of `symbols` (uint8 or uint16, each below `bound` <= 512); ``take(data, at, count,
bound)`` returns (symbols, where the next field begins), uint8, or uint16 where `bound` exceeds 256.  Neither `count` nor
`bound` is in the stream: the reader knows them.  No symbols take no bytes.

A stream begins with the number of its mode and the set of the symbols that the mode tells apart.  FIXED: as many bits each as
the set needs, none for a lone symbol.  BASE3: five a byte, of three.  HUFFMAN: one by one, or several at once, as many as fit
a byte.  COMMON: the set, 1, 2, 4, ... symbols, at fixed width; the entries that hold others follow as positions, and as a
stream of their own.
"""

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits import base3, fixed_width, packing, prefix_stream, tuples, varint
from fedcomp.entropy.codes import huffman, positions, symbol_set
from fedcomp.entropy.codes.golomb_positions import CHUNK_GAPS
from fedcomp.entropy.codes.symbol_set import Symbols, SymbolSet, octets, symbol_type
from fedcomp.errors import CorruptError, TruncatedError

FIXED, BASE3, HUFFMAN, COMMON = range(4)
MODES = (FIXED, BASE3, HUFFMAN, COMMON)
_WORTH = 0.99  # COMMON is the slowest where it gains little

Counts = NDArray[np.int64]
"""How often each symbol below the bound occurs."""


class Plan(Protocol):
    """A way to write symbols of which only the counts are known; `bits` is what it takes."""

    bits: float

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream."""
        ...


def put(symbols: Symbols, bound: int) -> bytes:
    """Return the stream of `symbols`, each below `bound`, in the mode that takes the fewest bytes."""
    return b"".join(plan(histogram(symbols, bound)).write(symbols)) if symbols.size else b""


def histogram(symbols: Symbols, bound: int) -> Counts:
    """Return how often each symbol below `bound` occurs."""
    counts = np.zeros(bound, np.int64)
    for start in range(0, symbols.size, BLOCK_ENTRIES):
        block = symbols[start : start + BLOCK_ENTRIES]
        if bound <= 8:  # so many comparisons of bytes are faster
            counts += [np.count_nonzero(block == symbol) for symbol in range(bound)]
        else:
            counts += np.bincount(block, minlength=bound)
    return counts


MIN_OVERHEAD_BITS = 20
"""Bits that a Huffman code and the one with exceptions write at least beside symbols and the set of them."""


def plan(counts: Counts, *, common: bool = True) -> Plan:
    """Return the way to write symbols that occur `counts` times, one of them at least, in the fewest bits."""
    used = np.flatnonzero(counts)
    fixed = Fixed(counts)
    if used.size > 3 or used.size == 2:
        shares = counts[used] / counts.sum()
        # Every other way takes the entropy and this much more than the set of symbols.
        if int(counts.sum()) * fixed.set.width <= -float(counts[used] @ np.log2(shares)) + MIN_OVERHEAD_BITS:
            return fixed
    plans: list[Plan] = [fixed]
    if used.size == 3:
        plans.append(Base3(counts))
    if used.size > 1:
        plans += [Coded(counts, length) for length in sorted({1, tuples.longest(used.size)})]
    best = min(plans, key=_bits)
    if common and used.size > 1:
        least, width = min((_common_bits(counts, width), width) for width in range(_used(counts).width))
        if least < _WORTH * best.bits:
            best = min(best, Common(counts, 1 << width), key=_bits)
    return best


class Fixed:
    """All symbols that occur, at fixed width."""

    def __init__(self, counts: Counts) -> None:
        """Find how many bits that takes."""
        self.set = _used(counts)
        self.bits: float = _head_bits(self.set) + int(counts.sum()) * self.set.width

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream."""
        yield bytes([FIXED]) + self.set.put()
        if self.set.width:
            yield from fixed_width.write(self.set.ranks(symbols, fixed_width.BLOCK), self.set.width)


class Base3:
    """Three symbols that occur, five in a byte."""

    def __init__(self, counts: Counts) -> None:
        """Find how many bits that takes."""
        self.set = _used(counts)
        self.bits: float = _head_bits(self.set) + 8 * base3.size(int(counts.sum()))

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream."""
        yield bytes([BASE3]) + self.set.put()
        yield from map(base3.write, self.set.ranks(symbols, base3.BLOCK))


class Coded:
    """All symbols that occur in a Huffman code, `length` of them at once."""

    def __init__(self, counts: Counts, length: int) -> None:
        """Find how many bits that takes: of several at once as if they were independent."""
        self.set, self.length = _used(counts), length
        self.counts = counts[self.set.used]
        single = shares = self.counts / self.counts.sum()
        for _ in range(length - 1):
            shares = np.multiply.outer(shares, single).ravel()
        count = -(-int(self.counts.sum()) // length)
        expected = count * shares
        total = int(expected @ huffman.best_lengths(expected))
        found = float(-np.expm1(-expected).sum())  # of all tuples some are too rare to occur
        described = 4 * found + (shares.size if length > 1 else 0)
        self.bits: float = _head_bits(self.set) + 8 + described + prefix_stream.head_bits(count, total) + total

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream."""
        yield bytes([HUFFMAN]) + self.set.put() + bytes([self.length])
        inner, counts = self.set, self.counts
        if self.length > 1:
            blocks = self.set.ranks(symbols, self.length * tuples.BLOCK)
            symbols = np.concatenate([tuples.join(block, self.set.size, self.length) for block in blocks])
            of_all = histogram(symbols, self.set.size**self.length)
            inner = _used(of_all)
            counts = of_all[inner.used]
            yield inner.put()
        code = huffman.Huffman(huffman.best_lengths(counts))
        yield packing.pack(code.lengths, 4)
        yield code.write(inner.ranks(symbols, prefix_stream.BATCH), counts)


class Common:
    """The most frequent symbols, `size` of them, a power of two, at fixed width; the rest behind their positions."""

    def __init__(self, counts: Counts, size: int) -> None:
        """Find about how many bits that takes: positions as expected of independent ones."""
        self.set = SymbolSet(_most_frequent(counts, size), counts.size)
        rest = counts.copy()
        rest[self.set.used] = 0
        self.rest = plan(rest, common=False)
        self.bits: float = _head_bits(self.set) + 24 + _common_bits(counts, self.set.width, self.rest.bits)

    def write(self, symbols: Symbols) -> Iterator[bytes]:
        """Yield the stream: positions and symbols of the rest, then all entries, those of the rest as if of rank 0."""
        indices = self._others(symbols)
        yield bytes([COMMON]) + self.set.put() + varint.put(indices.size)
        yield positions.put(indices, symbols.size)
        yield from self.rest.write(symbols[indices])
        if self.set.width:
            yield from fixed_width.write(self.set.ranks(symbols, fixed_width.BLOCK, others=True), self.set.width)

    def _others(self, symbols: Symbols) -> NDArray[np.int64]:
        hits = []
        for start in range(0, symbols.size, BLOCK_ENTRIES):
            block = symbols[start : start + BLOCK_ENTRIES]
            other = block != self.set.used[0]
            for symbol in self.set.used[1:]:
                other &= block != symbol
            hits.append(np.flatnonzero(other) + start)
        return np.concatenate(hits)


def _bits(plan: Plan) -> float:
    return plan.bits


def _used(counts: Counts) -> SymbolSet:
    return SymbolSet(np.flatnonzero(counts), counts.size)


def _head_bits(used: SymbolSet) -> int:
    return 8 + 8 * len(used.put())


def _most_frequent(counts: Counts, size: int) -> NDArray[np.int64]:
    """Return the `size` symbols that occur most often, ascending; of equal ones those that are lower."""
    return np.sort(np.argsort(-counts, kind="stable")[:size])


def _common_bits(counts: Counts, width: int, rest_bits: float = 0) -> float:
    """Return what the most frequent symbols take at `width`, with the positions of the rest and its `rest_bits` at least.

    The rest is half of all at most; with more, other codes are better.
    """
    rest = np.delete(counts, _most_frequent(counts, 1 << width))
    rest = rest[rest > 0]
    n, k = int(counts.sum()), int(rest.sum())
    if 2 * k > n:
        return math.inf
    # Whatever code the rest gets, it takes its entropy or more, and a bit each unless all are the same.
    least = max(k, float(rest @ np.log2(k / rest))) if rest.size > 1 else 0
    return n * width + min(n, k * _gap_bits(k / n) + 8 * k / CHUNK_GAPS) + max(least, rest_bits)


def _gap_bits(p: float) -> float:
    """Return the expected bits of a gap between independent positions of density `p`: Sattler et al., 2020, section V."""
    return float(min(b - 1 / np.expm1((1 << b) * np.log1p(-p)) for b in range(32)))


# ---- reading ---------------------------------------------------------------------------------------------------------


def take(data: bytes, at: int, count: int, bound: int, modes: tuple[int, ...] = MODES) -> tuple[Symbols, int]:
    """Return `count` symbols, each below `bound`, and where the next field begins.

    A few bytes may stand for any number of symbols: the caller has made sure that memory may be taken for `count`.
    """
    if not count:
        return np.empty(0, symbol_type(bound)), at
    if at >= len(data):
        raise TruncatedError("the body ends before the symbols")
    mode = data[at]
    if mode not in modes:
        raise CorruptError(f"symbols in mode {mode}; here it is one of {modes[0]} to {modes[-1]}")
    used, at = symbol_set.take(data, at + 1, bound)
    reader = (_take_fixed, _take_base3, _take_huffman, _take_common)[mode]
    return reader(data, at, count, used)


def _take_fixed(data: bytes, at: int, count: int, used: SymbolSet) -> tuple[Symbols, int]:
    if not used.width:
        return np.full(count, used.used[0], symbol_type(used.bound)), at
    field, at = octets(data, at, fixed_width.size(count, used.width), "symbols")
    packing.check_padding(field.data, count * used.width, "symbols")
    symbols = np.empty(count, symbol_type(used.bound))
    for part, ranks in fixed_width.read(field, used.width, count):
        if used.size < 1 << used.width and ranks.max() >= used.size:
            raise CorruptError(f"symbol {ranks.max()} of a set of {used.size}")
        symbols[part] = ranks
    return used.symbols(symbols), at


def _take_base3(data: bytes, at: int, count: int, used: SymbolSet) -> tuple[Symbols, int]:
    if used.size != 3:
        raise CorruptError(f"{used.size} symbols in base 3; 3 are needed")
    field, at = octets(data, at, base3.size(count), "trits")
    symbols = np.empty(count, symbol_type(used.bound))
    for part, trits in base3.read(field, count):
        symbols[part] = trits
    return used.symbols(symbols), at


def _take_huffman(data: bytes, at: int, count: int, used: SymbolSet) -> tuple[Symbols, int]:
    (length,), at = octets(data, at, 1, "the symbols at once")
    if length not in (1, tuples.longest(used.size)):
        raise CorruptError(
            f"{length} symbols at once of a set of {used.size}; 1 or {tuples.longest(used.size)} is allowed"
        )
    inner = used
    if length > 1:
        inner, at = symbol_set.take(data, at, used.size ** int(length))
    field, at = octets(data, at, -(-inner.size // 2), "Huffman lengths")
    packing.check_padding(field.data, 4 * inner.size, "Huffman lengths")
    code = huffman.Huffman(packing.unpack(field, 4, inner.size).astype(np.uint8))
    code.check()
    found, at = code.read(data, at, -(-count // int(length)), inner.used.astype(symbol_type(inner.bound)))
    if length == 1:
        return found, at
    symbols = np.empty(count, symbol_type(used.bound))
    for part, ranks in tuples.split(found, used.size, int(length), count):
        symbols[part] = ranks
    return used.symbols(symbols), at


def _take_common(data: bytes, at: int, count: int, used: SymbolSet) -> tuple[Symbols, int]:
    if used.size & (used.size - 1):
        raise CorruptError(f"{used.size} common symbols; a power of two is needed")
    k, at = varint.take(data, at, "the number of other symbols")
    if 2 * k > count or k > 8 * len(data):
        raise CorruptError(f"{k} other symbols of {count} in {len(data)} bytes; they are half of all at most")
    indices, at = positions.take(data, at, count, k)
    rest, at = take(data, at, k, used.bound, MODES[:-1])
    symbols, at = _take_fixed(data, at, count, used)
    symbols[indices] = rest
    return symbols, at
