"""A stream of small symbols in the smallest of three modes: the two of `plain_alphabet.py`, and COMMON.

COMMON: a set of 1, 2, 4, ... symbols at fixed width.  Entries with other symbols follow as positions and as a stream of
their own.  The symbols are below `bound` <= 512, and the reader knows their number and `bound`.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.codes import plain_alphabet, positions
from fedcomp.entropy.codes.golomb_positions import CHUNK_GAPS
from fedcomp.entropy.codes.plain_alphabet import MIN_OVERHEAD_BITS, Counts, SymbolWriter, histogram
from fedcomp.entropy.codes.symbol_set import Symbols, SymbolSet
from fedcomp.errors import CorruptError

COMMON = 3
MAX_COMMON_SHARE = 0.99
"""COMMON is the slowest mode: it is chosen only if it takes at most this share of the bits of the best other mode."""


def write(symbols: Symbols, bound: int) -> bytes:
    """Return the stream of `symbols`, each below `bound`, in the mode with the fewest bytes."""
    return b"".join(plan(histogram(symbols, bound)).write(symbols)) if symbols.size else b""


def plan(counts: Counts) -> SymbolWriter:
    """Return the plan with the fewest bits for symbols that occur `counts` times; at least one symbol occurs."""
    best = plain_alphabet.plan(counts)
    used = SymbolSet(np.flatnonzero(counts), counts.size)
    if used.size == 1 or best.bits <= plain_alphabet.entropy_bits(counts) + MIN_OVERHEAD_BITS:
        return best
    least, width = min((_common_bits(counts, width), width) for width in range(used.width))
    if least < MAX_COMMON_SHARE * best.bits:
        return min(best, common(counts, 1 << width), key=lambda plan: plan.bits)
    return best


def common(counts: Counts, size: int) -> SymbolWriter:
    """Return the plan of the `size` most frequent symbols, a power of two, at fixed width.

    The other symbols follow as positions and as a stream of their own; rank 0 takes the place of each.
    """
    used = SymbolSet(_most_frequent(counts, size), counts.size)
    other_counts = counts.copy()
    other_counts[used.used] = 0
    others = plain_alphabet.plan(other_counts)

    def rest(symbols: Symbols) -> Iterator[bytes]:
        indices = _indices_outside(used, symbols)
        yield write_varint(indices.size)
        yield positions.write(indices, symbols.size, positions.BOUNDED)
        yield from others.write(symbols[indices])
        yield from used.write_ranks(symbols, others=True)

    # This estimate treats the positions of the others as independent.
    bits = plain_alphabet.head_bits(used) + 24 + _common_bits(counts, used.width, others.bits)
    return SymbolWriter(COMMON, used, bits, rest)


def _indices_outside(used: SymbolSet, symbols: Symbols) -> NDArray[np.int64]:
    hits: list[NDArray[np.int64]] = []
    for start in range(0, symbols.size, BLOCK_ENTRIES):
        block = symbols[start : start + BLOCK_ENTRIES]
        other = block != used.used[0]
        for symbol in used.used[1:]:
            other &= block != symbol
        hits.append(np.flatnonzero(other) + start)
    return np.concatenate(hits)


def _most_frequent(counts: Counts, size: int) -> NDArray[np.int64]:
    """Return the `size` symbols that occur most often, ascending; ties go to the lower symbol."""
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
    # In any plan, the rest takes at least its entropy, and a bit per symbol unless all are equal.
    least = max(k, float(rest @ np.log2(k / rest))) if rest.size > 1 else 0
    return n * width + min(n, k * _gap_bits(k / n) + 8 * k / CHUNK_GAPS) + max(least, rest_bits)


def _gap_bits(p: float) -> float:
    """Return the expected bits of a gap between independent positions of density `p`: Sattler et al., 2020, section V."""
    longer = math.log1p(-p)
    return min(b - 1 / math.expm1((1 << b) * longer) for b in range(32))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(reader: ByteReader, count: int, bound: int) -> Symbols:
    """Return the next `count` symbols, each below `bound`.

    A few bytes may represent any number of symbols: the caller must have checked that memory may be taken for `count`.
    """
    return plain_alphabet.read(reader, count, bound, {COMMON: _read_common})


def _read_common(reader: ByteReader, count: int, used: SymbolSet) -> Symbols:
    if used.size & (used.size - 1):
        raise CorruptError(f"{used.size} common symbols; a power of two is needed")
    k = reader.varint("number of other symbols")
    if 2 * k > count or k > 8 * reader.left:
        raise CorruptError(
            f"{k} other symbols of {count} with {reader.left} bytes left; at most half of all are allowed"
        )
    indices = positions.read(reader, count, k)
    rest = plain_alphabet.read(reader, k, used.bound)
    symbols = used.read_ranks(reader, count)
    symbols[indices] = rest
    return symbols
