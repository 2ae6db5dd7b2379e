"""Positions of kept entries, ascending, in the fewest bytes of several kinds; the kind's number begins the stream.

ALL: every entry is kept, and nothing follows.  GOLOMB: `golomb_positions.py`.  BITMAP: a bit for each entry of the vector.
DELTA: `delta_keys.py`.  Neither n nor k is in the stream: the reader knows them.  No positions take no bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcomp.core import BLOCK_ENTRIES, check_choice
from fedcomp.entropy.bits import packing
from fedcomp.entropy.codes import delta_keys, golomb_positions
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices

SMALLEST = "smallest"
ALL, GOLOMB, BITMAP, DELTA = range(4)
KINDS = {"Golomb": GOLOMB, "bitmap": BITMAP, "delta keys": DELTA}


class Measured(Protocol):
    """Positions of one kind, of known size, ready to be written."""

    @property
    def size(self) -> int:
        """The bytes that `write` will take."""
        ...

    def write(self) -> Iterator[bytes]:
        """Yield the stream behind the kind's number."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Bitmap:
    """A one for each kept entry of `n`."""

    indices: Indices
    n: int

    @property
    def size(self) -> int:
        """The bytes that `write` will take."""
        return -(-self.n // 8)

    def write(self) -> Iterator[bytes]:
        """Yield the bits, zeros up to a whole byte."""
        edges = np.searchsorted(self.indices, np.arange(0, self.n + BLOCK_ENTRIES, BLOCK_ENTRIES))
        for block, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            start = block * BLOCK_ENTRIES
            ones = np.zeros(min(BLOCK_ENTRIES, self.n - start), np.bool_)
            ones[self.indices[begin:end] - start] = True
            yield np.packbits(ones).tobytes()


@dataclass(frozen=True, slots=True)
class All:
    """Every entry."""

    size: int = 0

    def write(self) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())


def put(indices: Indices, n: int, kind: str = SMALLEST) -> bytes:
    """Return the stream of `indices`, ascending and below `n`, of the `kind` of that name or in the fewest bytes."""
    check_choice("positions", kind, (SMALLEST, *KINDS))
    k = indices.size
    if not k:
        return b""
    table = golomb_positions.gaps(indices, n)
    measure: dict[int, Callable[[], Measured]] = {
        GOLOMB: lambda: golomb_positions.measure(table, k),
        BITMAP: lambda: Bitmap(indices, n),
        DELTA: lambda: delta_keys.measure(table.ravel()[:k]),
    }
    if kind != SMALLEST:
        number, best = KINDS[kind], measure[KINDS[kind]]()
    elif k == n:
        number, best = ALL, All()
    else:
        number, best = min(((number, one()) for number, one in measure.items()), key=lambda pair: pair[1].size)
    return b"".join((bytes([number]), *best.write()))


def take(data: bytes, at: int, n: int, k: int) -> tuple[Indices, int]:
    """Return the `k` indices below `n` that lie in `data` from `at` on, and where the next field begins.

    Takes memory for `k` indices at most: the caller has made sure that the body can hold so many.
    """
    if not k:
        return np.empty(0, np.int64), at
    if at >= len(data):
        raise TruncatedError("the body ends before the positions")
    kind = data[at]
    if kind == ALL:
        if k != n:
            raise CorruptError(f"positions of all {n} entries; {k} are kept")
        return np.arange(n), at + 1
    if kind == GOLOMB:
        return golomb_positions.take(data, at + 1, n, k)
    if kind == BITMAP:
        return _take_bitmap(data, at + 1, n, k)
    if kind == DELTA:
        return delta_keys.take(data, at + 1, n, k)
    raise CorruptError(f"positions of kind {kind}; known are {ALL} to {DELTA}")


def _take_bitmap(data: bytes, at: int, n: int, k: int) -> tuple[Indices, int]:
    end = at + -(-n // 8)
    if len(data) < end:
        raise TruncatedError(f"{len(data) - at} bytes of a bitmap; {n} entries need {end - at}")
    packing.check_padding(memoryview(data)[at:end], n, "bitmap")
    octets = np.frombuffer(data, np.uint8, end - at, at)
    steps = [octets[start : start + BLOCK_ENTRIES // 8] for start in range(0, octets.size, BLOCK_ENTRIES // 8)]
    ones = sum(int(np.bitwise_count(step).sum(dtype=np.int64)) for step in steps)
    if ones != k:
        raise CorruptError(f"a bitmap with {ones} ones; {k} entries are kept")
    indices = np.empty(k, np.int64)
    held = 0
    for block, step in enumerate(steps):
        hits = np.unpackbits(step).view(np.bool_).nonzero()[0]
        np.add(hits, block * BLOCK_ENTRIES, out=indices[held : held + hits.size])
        held += hits.size
    return indices, end
