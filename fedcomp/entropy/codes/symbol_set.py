"""The symbols below a bound that occur: a stream lists them once, and then identifies each symbol by its rank.

Ranks at a fixed width take ceil(log2 m) bits each for m symbols, and no bits for a lone symbol.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import block_slices
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.errors import CorruptError
from fedcomp.quantized import level_type

Symbols = NDArray[Any]
"""uint8, or uint16 for more than 256 symbols."""


@dataclass(frozen=True, slots=True, eq=False)
class SymbolSet:
    """One or more symbols below `bound`: `used`, int64, ascending."""

    used: NDArray[np.int64]
    bound: int

    @property
    def size(self) -> int:
        """The number of symbols."""
        return int(self.used.size)

    @property
    def width(self) -> int:
        """The bits of a rank."""
        return (self.size - 1).bit_length()

    def write(self) -> bytes:
        """Return the number of symbols and, unless it is `bound`, the shorter of their list and a bitmap."""
        head = write_varint(self.size)
        if self.size == self.bound:
            return head
        if _is_list(self.size, self.bound):
            return head + packing.write(self.used.astype(np.uint16), _width(self.bound))
        flags = np.zeros(self.bound, np.bool_)
        flags[self.used] = True
        return head + np.packbits(flags).tobytes()

    def write_ranks(self, symbols: Symbols, *, others: bool = False) -> Iterator[bytes]:
        """Yield the ranks of `symbols` at fixed width; with `others`, symbols outside the set have rank 0."""
        if self.width:
            for block in self.ranks(symbols, packing.BLOCK, others=others):
                yield packing.write(block, self.width)

    def read_ranks(self, reader: ByteReader, count: int) -> Symbols:
        """Return the `count` symbols whose ranks at fixed width follow."""
        if not self.width:
            return np.full(count, self.used[0], level_type(self.bound))
        octets = reader.bits(count * self.width, "symbols")
        symbols = np.empty(count, level_type(self.bound))
        for part, ranks in packing.read_blocks(octets, self.width, count):
            if self.size < 1 << self.width and ranks.max() >= self.size:
                raise CorruptError(f"symbol {ranks.max()} of a set of {self.size}")
            symbols[part] = ranks
        return self.symbols(symbols)

    def ranks(self, symbols: Symbols, block: int, *, others: bool = False) -> Iterator[Symbols]:
        """Yield the ranks of `symbols`, `block` at a time; with `others`, symbols outside the set have rank 0."""
        table = np.zeros(self.bound, level_type(self.size))
        table[self.used] = np.arange(self.size)
        unchanged = self._is_first() and not others and table.dtype == symbols.dtype
        for part in block_slices(symbols.size, block):
            yield symbols[part] if unchanged else _looked_up(table, symbols[part])

    def symbols(self, ranks: Symbols) -> Symbols:
        """Return the symbols with these `ranks`, in the memory of `ranks` if it can hold them."""
        dtype = level_type(self.bound)
        if self._is_first() and ranks.dtype == dtype:
            return ranks
        result = ranks if ranks.dtype == dtype else np.empty(ranks.size, dtype)
        table = self.used.astype(dtype)
        for part in block_slices(ranks.size):
            result[part] = _looked_up(table, ranks[part])
        return result

    def _is_first(self) -> bool:
        """Return whether the symbols are 0, 1, ... `size` - 1: then they are their own ranks."""
        return int(self.used[-1]) == self.size - 1


def read(reader: ByteReader, bound: int) -> SymbolSet:
    """Return the next set of symbols below `bound`."""
    size = reader.varint("size of a set of symbols")
    if not 1 <= size <= bound:
        raise CorruptError(f"a set of {size} symbols; 1 to {bound} are allowed")
    if size == bound:
        return SymbolSet(np.arange(bound), bound)
    listed, width = _is_list(size, bound), _width(bound)
    octets = reader.bits(size * width if listed else bound, "set of symbols")
    used = packing.read(octets, width, size) if listed else np.flatnonzero(np.unpackbits(octets))
    if used.size != size or used[-1] >= bound or (np.diff(used) <= 0).any():
        raise CorruptError(f"a set of {used.size} symbols; {size} ascending ones below {bound} are needed")
    return SymbolSet(used, bound)


def _width(bound: int) -> int:
    return (bound - 1).bit_length()


def _is_list(size: int, bound: int) -> bool:
    """Return whether a list of `size` symbols takes no more bits than a bitmap."""
    return size * _width(bound) <= bound


def _looked_up(table: Symbols, index: Symbols) -> Symbols:
    """Return ``table[index]``."""
    if table.itemsize == index.itemsize == 1:
        padded = table.tobytes().ljust(256, b"\0")
        return np.frombuffer(index.tobytes().translate(padded), np.uint8)  # the fastest way
    return table.take(index, mode="clip")
