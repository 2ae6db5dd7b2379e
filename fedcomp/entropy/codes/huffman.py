"""Canonical Huffman codes of small alphabets, no codeword longer than a limit; read in lockstep through a table.

Huffman, Proc. IRE 40(9), 1952; limited lengths by package-merge, Larmore and Hirschberg, J. ACM 37(3), 1990; canonical
codewords, Schwartz and Kallick, CACM 7(3), 1964: ordered by length, then by symbol, so the lengths say everything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import prefix_stream
from fedcomp.errors import CorruptError

LONGEST = 15
_FAST = (12, 13)
"""Shorter limits, whose tables lie in the fastest cache: taken where they cost next to nothing."""
_NOTHING = 1.003
_ROWS = 64  # steps whose symbols are laid out at a time

Lengths = NDArray[np.uint8]
Counts = NDArray[np.int64] | NDArray[np.float64]
"""How often each symbol occurs, or is expected to."""


def best_lengths(counts: Counts) -> Lengths:
    """Return code lengths of at most 15 for symbols that occur `counts` > 0 times, at most 0.3 % from the best ones."""
    lengths = code_lengths(counts, LONGEST)
    for limit in _FAST:
        if lengths.max() > limit and counts.size <= 1 << limit:
            shorter = code_lengths(counts, limit)
            if counts @ shorter.astype(np.int64) <= _NOTHING * (counts @ lengths.astype(np.int64)):
                return shorter
    return lengths


def code_lengths(counts: Counts, limit: int = LONGEST) -> Lengths:
    """Return the lengths of the best code for symbols that occur `counts` times, none above `limit`; a lone symbol's is 0."""
    symbols = counts.size
    if symbols > 1 << limit:
        raise ValueError(f"{symbols} symbols; codewords of {limit} bits are of at most {1 << limit}")
    order = np.argsort(counts, kind="stable")
    coins = counts[order]
    # Each pass pairs the list into packages and merges those with the coins; what the last list begins with is bought.
    row, is_coin = coins, [np.ones(symbols, np.bool_)]
    for _ in range(limit - 1):
        packages = row[: row.size // 2 * 2].reshape(-1, 2).sum(axis=1)
        both = np.concatenate((coins, packages))
        merged = np.argsort(both, kind="stable")
        row = both[merged]
        is_coin.append(merged < symbols)
    lengths = np.zeros(symbols, np.uint8)
    bought = 2 * symbols - 2
    for coin in reversed(is_coin):
        alone = int(np.count_nonzero(coin[:bought]))
        lengths[order[:alone]] += 1
        bought = 2 * (bought - alone)
    return lengths


def codewords(lengths: Lengths) -> NDArray[np.uint64]:
    """Return the canonical codeword of each symbol."""
    order = np.argsort(lengths, kind="stable")
    sizes = 1 << (LONGEST - lengths[order].astype(np.int64))
    words = np.empty(lengths.size, np.uint64)
    words[order] = (np.cumsum(sizes) - sizes) >> (LONGEST - lengths[order])
    return words


@dataclass(frozen=True, slots=True, eq=False)
class Huffman:
    """The code of the symbols 0, 1, ..., whose codewords have `lengths`."""

    lengths: Lengths

    def check(self) -> None:
        """Refuse lengths that no complete prefix code of two symbols or more has: the sum of 2^-length is 1."""
        if self.lengths.size < 2:
            raise CorruptError("a Huffman code of one symbol; two or more are needed")
        filled = int((1 << (LONGEST - self.lengths.astype(np.int64))).sum())
        if filled != 1 << LONGEST:
            raise CorruptError(f"Huffman lengths that fill {filled} of {1 << LONGEST} codewords")

    def bits(self, counts: NDArray[np.int64]) -> int:
        """Return the bits of all codewords where symbols occur `counts` times."""
        return int(counts @ self.lengths.astype(np.int64))

    def write(self, batches: Iterable[NDArray[Any]], counts: NDArray[np.int64]) -> bytes:
        """Return the stream of symbols that occur `counts` times and come in batches of `prefix.BATCH`, uint8 up to 256."""
        words, lengths = codewords(self.lengths), self.lengths.astype(np.uint64)
        size, total = int(counts.sum()), self.bits(counts)
        if self.lengths.size > 256:
            coded = ((words.take(batch, mode="clip"), lengths.take(batch, mode="clip")) for batch in batches)
            return prefix_stream.write(coded, size, total)
        return prefix_stream.write(map(_Pairs(words, lengths).of, batches), size, total, per_item=0.5)

    def read(self, data: bytes, at: int, count: int, names: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Return `count` symbols, each by its name, uint8 or uint16, and where the next field begins."""
        stream = prefix_stream.ChunkedBitReader(data, at, count, "Huffman codewords")
        width, table = self._table(names)
        symbols = np.empty((stream.chunks, stream.size), names.dtype)
        rows = np.empty((_ROWS, stream.chunks), names.dtype)
        room = np.empty((2, stream.chunks), np.uint64)
        for steps, live in stream.steps():
            index, entries = room[:, :live]
            for first in range(steps.start, steps.stop, _ROWS):
                last = min(first + _ROWS, steps.stop)
                for begin in range(first, last, 64 // width):  # so many codewords lie in a window
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
        return symbols.reshape(-1)[:count], stream.end

    def _table(self, names: NDArray[Any]) -> tuple[int, NDArray[np.uint64]]:
        """Return how many bits are looked at, and for each value of them the symbol's name and, above 16 bits, its length."""
        width = int(self.lengths.max())
        order = np.argsort(self.lengths, kind="stable")
        entries = names[order].astype(np.uint64) | self.lengths[order].astype(np.uint64) << np.uint64(16)
        return width, np.repeat(entries, 1 << (width - self.lengths[order].astype(np.int64)))


class _Pairs:
    """Codewords of two symbols at once, looked up under the two bytes that they are."""

    def __init__(self, words: NDArray[np.uint64], lengths: NDArray[np.uint64]) -> None:
        """Join all pairs of codewords: each is above its length, 8 bits, in an entry of a table."""
        self._words, self._lengths = words, lengths
        both = np.zeros(
            (words.size, 256), np.uint64
        )  # (second, first): as two bytes are read as a little-endian number
        both[:, : words.size] = (words << lengths[:, None] | words[:, None]) << np.uint64(8)
        both[:, : words.size] |= lengths + lengths[:, None]
        self._table = both.reshape(-1)

    def of(self, batch: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return (codewords, lengths) of the pairs of `batch`; what is left over at its end is one of its own."""
        even = batch.size // 2 * 2
        entries = self._table.take(np.ascontiguousarray(batch[:even]).view("<u2"), mode="clip")
        lengths = entries & np.uint64(255)
        np.right_shift(entries, np.uint64(8), out=entries)
        if even < batch.size:
            return np.append(entries, self._words[batch[-1:]]), np.append(lengths, self._lengths[batch[-1:]])
        return entries, lengths
