"""Positions as delta keys: gaps in groups of l payload bits, each with a flag for whether another group follows.

Yang, Chen, Zeng, Gao, "FastSGD", arXiv:2112.04291, encode keys as fine-grained deltas; the layout is our own design in the
style of the abstract.  A gap g >= 1 takes ceil(bits(g) / l) groups, the most significant one first.  The l of 1 to 16 with the
fewest bits is chosen: sum (l + 1) ceil(bits(g) / l).

All flags come first: for each gap the number of its groups less one, in unary.  Then follow the payloads of the gaps of one
group, of two groups, and so on, so that each stream is decoded as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import block_slices
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.codes.golomb_positions import indices_of
from fedcomp.errors import CorruptError
from fedcomp.quantized import Indices

WIDTHS = range(1, 17)
MAX_GAP_BITS = 32
"""Bits of the longest gap, 2^31."""
_GROUPS = -(-np.arange(MAX_GAP_BITS + 1) // np.array(WIDTHS)[:, None])
"""The groups of a gap by width and by bits of the gap."""


@dataclass(frozen=True, slots=True, eq=False)
class DeltaKeys:
    """Gaps g = `runs` + 1 in groups of `width` bits.

    `lengths` holds the bits of each gap, uint8; `counts` the number of gaps that take 0, 1, 2 ... groups.
    """

    runs: NDArray[np.uint32]
    lengths: NDArray[np.uint8]
    width: int
    counts: NDArray[np.int64]

    @property
    def groups(self) -> int:
        """The groups of all gaps."""
        return int(self.counts @ np.arange(self.counts.size))

    @property
    def size(self) -> int:
        """The bytes that `write` takes."""
        flags = -(-self.groups // 8)
        payloads = sum(packing.size(count, groups * self.width) for groups, count in enumerate(self.counts.tolist()))
        return 1 + len(write_varint(flags)) + flags + payloads

    def write(self) -> Iterator[bytes]:
        """Yield the width, the length of the flags, the flags, the payloads."""
        yield bytes([self.width])
        more = (self.lengths - np.uint8(1)) // np.uint8(self.width)
        blocks = (more[part] for part in block_slices(more.size))
        flags = packing.write_unary(blocks, self.groups)
        yield write_varint(len(flags))
        yield flags
        for groups, count in enumerate(self.counts.tolist()):
            if count:
                runs = self.runs if count == more.size else self.runs[more == groups - 1]
                for part in block_slices(count):  # of whole bytes, whatever the width
                    yield packing.write(runs[part] + np.uint64(1), groups * self.width)


def measure(runs: NDArray[np.uint32]) -> DeltaKeys:
    """Return the gaps `runs` + 1, uint32 (k,), with the width of the fewest bits; ties go to the smaller width."""
    lengths = np.empty(runs.size, np.uint8)
    histogram = np.zeros(MAX_GAP_BITS + 1, np.int64)
    for part in block_slices(runs.size):
        exponents = (runs[part] + np.float64(1)).view(np.int64)  # that of g, exactly: bits(g) = 1 + floor(log2(g))
        exponents >>= 52
        exponents -= 1022
        histogram += np.bincount(exponents, minlength=MAX_GAP_BITS + 1)
        lengths[part] = exponents
    width = WIDTHS[int(np.argmin((_GROUPS @ histogram) * (np.array(WIDTHS) + 1)))]
    counts = np.zeros(-(-MAX_GAP_BITS // width) + 1, np.int64)
    np.add.at(counts, _GROUPS[WIDTHS.index(width)], histogram)
    return DeltaKeys(runs, lengths, width, counts)


def read(reader: ByteReader, n: int, k: int) -> Indices:
    """Return the next `k` indices below `n`."""
    width = reader.byte("width of the delta keys")
    if width not in WIDTHS:
        raise CorruptError(f"delta keys of {width} bits; {WIDTHS[0]} to {WIDTHS[-1]} are allowed")
    size, max_groups = reader.varint("length of the flags"), -(-MAX_GAP_BITS // width)
    if 8 * size > min(n, k * max_groups) + 7:  # a gap g takes at most g groups
        raise CorruptError(f"{size} bytes of flags; {k} gaps within {n} entries take fewer")
    more = packing.read_unary(reader.take(size, "flags"), k, "group counts")
    if more.max() >= max_groups:
        raise CorruptError(f"a gap in {more.max() + 1} groups of {width} bits; at most {max_groups} are allowed")
    counts = np.bincount(more).tolist()
    group_of, gaps = more.astype(np.uint8), more
    for groups, count in enumerate(counts, 1):
        if count:
            gaps[group_of == groups - 1] = _read_payloads(reader, groups, width, count, n)
    return indices_of(gaps, n)


def _read_payloads(reader: ByteReader, groups: int, width: int, count: int, n: int) -> NDArray[np.uint32]:
    """Return the `count` gaps of `groups` groups each; refuse those that need fewer groups, and those longer than `n`."""
    length, least = groups * width, 1 << (groups - 1) * width
    octets = reader.bits(count * length, "delta keys")
    found = np.empty(count, np.uint32)
    for part in block_slices(count):  # of whole bytes, whatever the width
        held = octets[part.start * length // 8 : packing.size(part.stop, length)]
        block = packing.read(held, length, part.stop - part.start)
        if block.min() < least or block.max() > n:
            raise CorruptError(f"a gap of {block.min()} to {block.max()} in {groups} groups; {least} to {n} is allowed")
        found[part] = block
    return found
