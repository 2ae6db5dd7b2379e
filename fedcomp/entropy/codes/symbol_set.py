"""Which of the symbols below a bound occur: a stream names them once, then tells them apart by their places (ranks)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits import packing, varint
from fedcomp.errors import CorruptError, TruncatedError

Symbols = NDArray[Any]
"""uint8, or uint16 where there are more than 256."""


def symbol_type(bound: int) -> np.dtype[Any]:
    """Return the dtype of symbols below `bound`."""
    return np.dtype(np.uint8 if bound <= 256 else np.uint16)


def octets(data: bytes, at: int, size: int, what: str) -> tuple[NDArray[np.uint8], int]:
    """Return `size` bytes of `data` and where the next field begins; `what` names them in errors."""
    if len(data) < at + size:
        raise TruncatedError(f"{what}: {len(data) - at} bytes; {size} are needed")
    return np.frombuffer(data, np.uint8, size, at), at + size


@dataclass(frozen=True, slots=True, eq=False)
class SymbolSet:
    """One or more symbols below `bound`: `used`, int64, ascending."""

    used: NDArray[np.int64]
    bound: int

    @property
    def size(self) -> int:
        """How many symbols there are."""
        return int(self.used.size)

    @property
    def width(self) -> int:
        """The bits that tell them apart."""
        return (self.size - 1).bit_length()

    def put(self) -> bytes:
        """Return how many there are and, unless it is all, the shorter of their list and a bitmap."""
        head = varint.put(self.size)
        if self.size == self.bound:
            return head
        if _listed(self.size, self.bound):
            return head + packing.pack(self.used.astype(np.uint16), _width(self.bound))
        flags = np.zeros(self.bound, np.bool_)
        flags[self.used] = True
        return head + np.packbits(flags).tobytes()

    def ranks(self, symbols: Symbols, block: int, *, others: bool = False) -> Iterator[Symbols]:
        """Yield the places of `symbols` in the set, in blocks of so many; `others`, which are not in it, get 0."""
        table = np.zeros(self.bound, symbol_type(self.size))
        table[self.used] = np.arange(self.size)
        as_they_are = self._is_first() and not others and table.dtype == symbols.dtype
        for start in range(0, symbols.size, block):
            part = symbols[start : start + block]
            yield part if as_they_are else _looked_up(table, part)

    def symbols(self, ranks: Symbols) -> Symbols:
        """Return the symbols that have `ranks`, in their memory where it can hold them."""
        dtype = symbol_type(self.bound)
        if self._is_first() and ranks.dtype == dtype:
            return ranks
        result = ranks if ranks.dtype == dtype else np.empty(ranks.size, dtype)
        table = self.used.astype(dtype)
        for start in range(0, ranks.size, BLOCK_ENTRIES):
            result[start : start + BLOCK_ENTRIES] = _looked_up(table, ranks[start : start + BLOCK_ENTRIES])
        return result

    def _is_first(self) -> bool:
        return int(self.used[-1]) == self.size - 1


def take(data: bytes, at: int, bound: int) -> tuple[SymbolSet, int]:
    """Return the set of symbols below `bound` that `data` has at `at`, and where the next field begins."""
    size, at = varint.take(data, at, "the number of symbols")
    if not 1 <= size <= bound:
        raise CorruptError(f"a set of {size} symbols; there are {bound}")
    if size == bound:
        return SymbolSet(np.arange(bound), bound), at
    listed, width = _listed(size, bound), _width(bound)
    count = size * width if listed else bound
    field, at = octets(data, at, -(-count // 8), "the set of symbols")
    packing.check_padding(field.data, count, "the set of symbols")
    used = packing.unpack(field, width, size) if listed else np.flatnonzero(np.unpackbits(field))
    if used.size != size or used[-1] >= bound or (np.diff(used) <= 0).any():
        raise CorruptError(f"a set that is not {size} ascending symbols below {bound}")
    return SymbolSet(used, bound), at


def _width(bound: int) -> int:
    return (bound - 1).bit_length()


def _listed(size: int, bound: int) -> bool:
    return size * _width(bound) <= bound


def _looked_up(table: Symbols, index: Symbols) -> Symbols:
    """Return ``table[index]``."""
    if table.itemsize == index.itemsize == 1:
        padded = table.tobytes().ljust(256, b"\0")
        return np.frombuffer(index.tobytes().translate(padded), np.uint8)  # the fastest there is
    return table.take(index, mode="clip")
