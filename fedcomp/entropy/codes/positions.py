"""Positions of kept entries, ascending, in the kind with the fewest bytes; the stream begins with the number of the kind.

ALL: every entry is kept, and nothing follows.  GOLOMB: `golomb_positions.py`.  BITMAP: a bit for each entry of the vector.
DELTA: `delta_keys.py`.  GAMMA: `gamma_positions.py`.  Neither n nor k is in the stream: the reader knows them.  An empty
stream takes no bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcomp.core import BLOCK_ENTRIES, check_choice
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import delta_keys, gamma_positions, golomb_positions
from fedcomp.entropy.codes.golomb_positions import runs_of
from fedcomp.errors import CorruptError
from fedcomp.quantized import Indices

SMALLEST, BOUNDED = "smallest", "bounded"
"""The kind with the fewest bytes: among all kinds, or among the kinds that take at least one bit for each position.

Gamma code takes almost no bytes for equal gaps.  A reader that has no other bound on k needs one of the other kinds.
"""
ALL, GOLOMB, BITMAP, DELTA, GAMMA = range(5)
KINDS = {"Golomb": GOLOMB, "bitmap": BITMAP, "delta keys": DELTA, "gamma": GAMMA}
CHOICES = {SMALLEST: tuple(KINDS.values()), BOUNDED: (GOLOMB, BITMAP, DELTA)} | {
    name: (number,) for name, number in KINDS.items()
}


@dataclass(frozen=True, slots=True)
class ChosenPositions:
    """A code of kept entries.  `positions`, one of `CHOICES`, is the encoder's choice; any instance decodes."""

    positions: str = SMALLEST

    def __post_init__(self) -> None:
        check_choice("positions", self.positions, CHOICES)


class Measured(Protocol):
    """Positions of one kind, of known size, ready to be written."""

    @property
    def size(self) -> int:
        """The bytes that `write` takes."""
        ...

    def write(self) -> Iterator[bytes]:
        """Yield the stream that follows the number of the kind."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Bitmap:
    """A one for each kept entry of `n`."""

    indices: Indices
    n: int

    @property
    def size(self) -> int:
        """The bytes that `write` takes."""
        return -(-self.n // 8)

    def write(self) -> Iterator[bytes]:
        """Yield the bits, zeros up to a whole byte."""
        edges = np.searchsorted(self.indices, np.arange(0, self.n + BLOCK_ENTRIES, BLOCK_ENTRIES))
        for block, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            start = block * BLOCK_ENTRIES
            ones = np.zeros(min(BLOCK_ENTRIES, self.n - start), np.bool_)
            ones[self.indices[begin:end] - start] = True
            yield np.packbits(ones).tobytes()


def write(indices: Indices, n: int, kind: str = SMALLEST) -> bytes:
    """Return the stream of `indices`, ascending and below `n`, in the kind or choice of kinds that `kind` names."""
    check_choice("positions", kind, CHOICES)
    k = indices.size
    if not k:
        return b""
    if k == n and kind in (SMALLEST, BOUNDED):
        return bytes([ALL])
    runs = runs_of(indices, n)
    measure: dict[int, Callable[[], Measured]] = {
        GOLOMB: lambda: golomb_positions.measure(runs, k),
        BITMAP: lambda: Bitmap(indices, n),
        DELTA: lambda: delta_keys.measure(runs.ravel()[:k]),
        GAMMA: lambda: gamma_positions.measure(runs.ravel()[:k]),
    }
    number, best = min(((number, measure[number]()) for number in CHOICES[kind]), key=lambda pair: pair[1].size)
    return b"".join((bytes([number]), *best.write()))


def read(reader: ByteReader, n: int, k: int) -> Indices:
    """Return the next `k` indices below `n`, int64, ascending.

    Takes memory for `k` indices at most: the caller must have checked that the body can hold `k` positions.
    """
    if not k:
        return np.empty(0, np.int64)
    kind = reader.byte("kind of the positions")
    if kind == ALL:
        if k != n:
            raise CorruptError(f"positions of all {n} entries; {k} are kept")
        return np.arange(n)
    if kind not in READERS:
        raise CorruptError(f"positions of kind {kind}; {ALL} to {GAMMA} are known")
    return READERS[kind](reader, n, k)


def _read_bitmap(reader: ByteReader, n: int, k: int) -> Indices:
    octets = reader.bits(n, "bitmap")
    steps = [octets[start : start + BLOCK_ENTRIES // 8] for start in range(0, octets.size, BLOCK_ENTRIES // 8)]
    ones = sum(int(np.bitwise_count(step).sum(dtype=np.int64)) for step in steps)
    if ones != k:
        raise CorruptError(f"a bitmap with {ones} ones; {k} entries are kept")
    indices = np.empty(k, np.int64)
    done = 0
    for block, step in enumerate(steps):
        hits = np.unpackbits(step).view(np.bool_).nonzero()[0]
        np.add(hits, block * BLOCK_ENTRIES, out=indices[done : done + hits.size])
        done += hits.size
    return indices


READERS = {GOLOMB: golomb_positions.read, BITMAP: _read_bitmap, DELTA: delta_keys.read, GAMMA: gamma_positions.read}
"""Kind -> reader of the stream that follows its number."""
