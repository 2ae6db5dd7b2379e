"""Canonical Huffman codes of small alphabets, with codewords of limited length; read through a table.

Huffman, Proc. IRE 40(9), 1952; limited lengths by package-merge, Larmore and Hirschberg, J. ACM 37(3), 1990; canonical
codewords, Schwartz and Kallick, CACM 7(3), 1964: ordered by length, then by symbol, so that the lengths determine the code.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing, prefix_stream
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.errors import CorruptError

MAX_LENGTH = 15
_FAST_LENGTHS = (12, 13)
"""Shorter limits, whose tables fit the fastest cache: used if they cost at most `_FAST_COST`."""
_FAST_COST = 1.003
MIN_CHUNKS = 32
"""With fewer chunks, reading the codewords one by one is faster than in lockstep."""
_ROWS = 64
"""Steps whose symbols are transposed at a time."""

Lengths = NDArray[np.uint8]
Counts = NDArray[np.int64] | NDArray[np.float64]
"""How often each symbol occurs, or is expected to occur."""


def best_lengths(counts: Counts) -> Lengths:
    """Return code lengths of at most 15 for at most 512 symbols that occur `counts` > 0 times, within 0.3 % of the optimum."""
    lengths = code_lengths(counts, MAX_LENGTH)
    for limit in _FAST_LENGTHS:
        if lengths.max() > limit:
            shorter = code_lengths(counts, limit)
            if counts @ shorter.astype(np.int64) <= _FAST_COST * (counts @ lengths.astype(np.int64)):
                return shorter
    return lengths


def code_lengths(counts: Counts, limit: int = MAX_LENGTH) -> Lengths:
    """Return the lengths, at most `limit`, of the best code for symbols that occur `counts` times; 0 for a lone symbol."""
    if counts.size > 1 << limit:
        raise ValueError(f"{counts.size} symbols; codewords of {limit} bits are of at most {1 << limit}")
    order = np.argsort(counts, kind="stable")
    lengths = np.empty(counts.size, np.uint8)
    best = _huffman(counts[order].tolist())
    lengths[order] = best if best[0] <= limit else _package_merge(counts[order], limit)
    return lengths


def least_bits(counts: Counts) -> float:
    """Return the bits of symbols that occur `counts` times in the best code, however long its codewords are."""
    ascending: list[float] = sorted(counts.tolist())
    return float(np.dot(ascending, _huffman(ascending)))


def _huffman(counts: list[float]) -> list[int]:
    """Return the lengths of the best code for symbols that occur `counts` times, ascending.

    The two rarest trees are joined, a symbol before a joined tree as rare: of all best codes, the one of the shortest lengths.
    """
    size = len(counts)
    symbols, trees = [*counts, math.inf], [math.inf] * size  # both ascending, with a guard at the end
    parents = [0] * (2 * size - 1)  # of the symbols, then of the trees
    symbol = tree = 0
    for parent in range(size - 1):
        total = 0.0
        for _ in range(2):
            if (rarest := symbols[symbol]) <= trees[tree]:
                parents[symbol], symbol = parent, symbol + 1
            else:
                rarest = trees[tree]
                parents[size + tree], tree = parent, tree + 1
            total += rarest
        trees[parent] = total
    depths = [0] * size
    for tree in reversed(range(size - 2)):
        depths[tree] = depths[parents[size + tree]] + 1
    return [depths[parent] + 1 for parent in parents[:size]] if size > 1 else [0]


def _package_merge(coins: Counts, limit: int) -> Lengths:
    """Return the lengths, at most `limit`, of the best code for symbols that occur `coins` times, ascending."""
    # Each pass pairs the list into packages and merges these with the coins; the start of the last list is bought.
    row, is_coin = coins, [np.ones(coins.size, np.bool_)]
    for _ in range(limit - 1):
        packages = row[: row.size // 2 * 2].reshape(-1, 2).sum(axis=1)
        both = np.concatenate((coins, packages))
        merged = np.argsort(both, kind="stable")
        row = both[merged]
        is_coin.append(merged < coins.size)
    lengths = np.zeros(coins.size, np.uint8)
    bought = 2 * coins.size - 2
    for coin in reversed(is_coin):
        alone = int(np.count_nonzero(coin[:bought]))
        lengths[:alone] += 1
        bought = 2 * (bought - alone)
    return lengths


def codewords(lengths: Lengths) -> NDArray[np.uint64]:
    """Return the canonical codeword of each symbol."""
    order = np.argsort(lengths, kind="stable")
    sizes = 1 << (MAX_LENGTH - lengths[order].astype(np.int64))
    words = np.empty(lengths.size, np.uint64)
    words[order] = (np.cumsum(sizes) - sizes) >> (MAX_LENGTH - lengths[order])
    return words


def write(batches: Iterable[NDArray[Any]], lengths: Lengths, counts: NDArray[np.int64]) -> bytes:
    """Return the code `lengths` and the codewords of the symbols in `batches`, which occur `counts` times.

    A batch is `prefix_stream.BATCH` symbols, and the last batch the remaining ones; uint8 for up to 256 different symbols.
    """
    words, sizes = codewords(lengths), lengths.astype(np.uint64)
    count, total = int(counts.sum()), int(counts @ lengths.astype(np.int64))
    head = packing.write(lengths, 4)
    if lengths.size > 256:
        coded = ((words.take(batch, mode="clip"), sizes.take(batch, mode="clip")) for batch in batches)
        return head + prefix_stream.write(coded, count, total)
    table = _pair_table(words, sizes)
    pairs = (_pairs(batch, table, words, sizes) for batch in batches)
    return head + prefix_stream.write(pairs, count, total, merged=2)


def read(reader: ByteReader, count: int, names: NDArray[Any]) -> NDArray[Any]:
    """Return the next `count` symbols, each by its name in `names`, uint8 or uint16: code lengths, then codewords."""
    if names.size < 2:
        raise CorruptError(f"a Huffman code of {names.size} symbol; two or more are needed")
    lengths = packing.read(reader.bits(4 * names.size, "Huffman lengths"), 4, names.size)
    filled = int((1 << (MAX_LENGTH - lengths)).sum())
    if filled != 1 << MAX_LENGTH:
        raise CorruptError(f"Huffman lengths that fill {filled} of {1 << MAX_LENGTH} codewords")
    stream = prefix_stream.ChunkedBitReader(reader, count, "Huffman codewords")
    width, table = _decode_table(lengths, names)
    if stream.chunks < MIN_CHUNKS:
        return stream.looked_up(table, width).astype(names.dtype)  # the name is in the low bits
    symbols = np.empty((stream.chunks, stream.size), names.dtype)
    rows = np.empty((_ROWS, stream.chunks), names.dtype)
    scratch = np.empty((2, stream.chunks), np.uint64)
    for steps, live in stream.steps():
        index, entries = scratch[:, :live]
        for first in range(steps.start, steps.stop, _ROWS):
            last = min(first + _ROWS, steps.stop)
            for begin in range(first, last, 64 // width):  # a window holds this many codewords
                windows, used = stream.windows(live), np.zeros(live, np.uint64)
                for row in range(begin, min(begin + 64 // width, last)):
                    np.right_shift(windows, np.uint64(64 - width), out=index)
                    table.take(index.view(np.int64), out=entries, mode="clip")
                    np.copyto(rows[row - first, :live], entries, casting="unsafe")
                    np.right_shift(entries, np.uint64(16), out=entries)
                    np.left_shift(windows, entries, out=windows)
                    used += entries
                stream.skip(used)
            symbols[:live, first:last] = rows[: last - first, :live].T
    stream.finish()
    return symbols.reshape(-1)[:count]


def _decode_table(lengths: NDArray[np.int64], names: NDArray[Any]) -> tuple[int, NDArray[np.uint64]]:
    """Return the longest length L, and for each value of L bits the symbol's name and, above 16 bits, its length."""
    width = int(lengths.max())
    order = np.argsort(lengths, kind="stable")
    entries = names[order].astype(np.uint64) | lengths[order].astype(np.uint64) << np.uint64(16)
    return width, np.repeat(entries, 1 << (width - lengths[order]))


def _pair_table(words: NDArray[np.uint64], lengths: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the joined codewords of all pairs, each above its length of 8 bits, indexed by the pair as a "<u2"."""
    both = np.zeros((words.size, 256), np.uint64)  # (second, first)
    both[:, : words.size] = (words << lengths[:, None] | words[:, None]) << np.uint64(8)
    both[:, : words.size] |= lengths + lengths[:, None]
    return both.reshape(-1)


def _pairs(
    batch: NDArray[np.uint8], table: NDArray[np.uint64], words: NDArray[np.uint64], lengths: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return (codewords, lengths) of the pairs of `batch`; a last symbol without a partner stays alone."""
    even = batch.size // 2 * 2
    codes = table.take(np.ascontiguousarray(batch[:even]).view("<u2"), mode="clip")
    sizes = codes & np.uint64(255)
    np.right_shift(codes, np.uint64(8), out=codes)
    if even < batch.size:
        return np.append(codes, words[batch[-1:]]), np.append(sizes, lengths[batch[-1:]])
    return codes, sizes
