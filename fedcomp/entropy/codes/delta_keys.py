"""Positions as delta keys: gaps in groups of l payload bits, each with a flag that says whether another one follows.

Yang, Chen, Zeng, Gao, "FastSGD", arXiv:2112.04291, encode keys as fine-grained deltas; the layout is a design of our own in
the style of the abstract.  A gap g >= 1 (the first index's counted from -1) takes ceil(bits(g) / l) groups, the most
significant one first; l of 1 to 16 is chosen for the fewest bits, sum (l + 1) ceil(bits(g) / l), from the histogram of the
bit lengths.  All flags come first (the groups of a gap less one, in unary), then the payloads of the gaps of one group, of
two, and so on: the same bits as flag and payload in turn, but each stream is decoded as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits import packing, unary, varint
from fedcomp.entropy.codes.golomb_positions import ascend
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import Indices

WIDTHS = range(1, 17)
LONGEST = 32
"""Bits of the longest gap, 2^31."""


@dataclass(frozen=True, slots=True, eq=False)
class DeltaKeys:
    """Gaps g = `runs` + 1 in groups of `width` bits, ready to be written; `lengths` holds the bits of each gap, uint8.

    `counts` says how many gaps take 0, 1, 2 ... groups.
    """

    runs: NDArray[np.uint32]
    lengths: NDArray[np.uint8]
    width: int
    counts: NDArray[np.int64]

    @property
    def groups(self) -> int:
        """Groups of all gaps."""
        return int(self.counts @ np.arange(self.counts.size))

    @property
    def size(self) -> int:
        """The bytes that `write` will take."""
        flags = -(-self.groups // 8)
        return 1 + len(varint.put(flags)) + flags + sum(_sizes(self.counts, self.width))

    def write(self) -> Iterator[bytes]:
        """Yield the width, the length of the flags, the flags, the payloads."""
        yield bytes([self.width])
        more = (self.lengths - np.uint8(1)) // np.uint8(self.width)
        flags = unary.write(
            (more[start : start + BLOCK_ENTRIES] for start in range(0, more.size, BLOCK_ENTRIES)), self.groups
        )
        yield varint.put(len(flags))
        yield flags
        for groups, count in enumerate(self.counts.tolist()):
            if count:
                runs = self.runs if count == more.size else self.runs[more == groups - 1]
                for start in range(0, count, BLOCK_ENTRIES):  # of whole bytes, whatever the width
                    yield packing.pack(runs[start : start + BLOCK_ENTRIES] + np.uint64(1), groups * self.width)


def measure(runs: NDArray[np.uint32]) -> DeltaKeys:
    """Return the gaps `runs` + 1, uint32 (k,), with the width that gives the fewest bits, the least of equal ones."""
    lengths = np.empty(runs.size, np.uint8)
    histogram = np.zeros(LONGEST + 1, np.int64)
    for start in range(0, runs.size, BLOCK_ENTRIES):
        part = slice(start, start + BLOCK_ENTRIES)
        exponents = (runs[part] + np.float64(1)).view(np.int64)  # that of g, exactly: bits(g) = 1 + floor(log2(g))
        exponents >>= 52
        exponents -= 1022
        histogram += np.bincount(exponents, minlength=LONGEST + 1)
        lengths[part] = exponents
    every = np.arange(LONGEST + 1)
    width = min(WIDTHS, key=lambda width: (width + 1) * int(histogram @ -(-every // width)))
    counts = np.zeros(-(-LONGEST // width) + 1, np.int64)
    np.add.at(counts, -(-every // width), histogram)
    return DeltaKeys(runs, lengths, width, counts)


def take(data: bytes, at: int, n: int, k: int) -> tuple[Indices, int]:
    """Return the `k` indices below `n` that lie in `data` from `at` on, and where the next field begins."""
    if at >= len(data):
        raise TruncatedError("the body ends before the width of the delta keys")
    width = data[at]
    if width not in WIDTHS:
        raise CorruptError(f"delta keys of {width} bits; 1 to {WIDTHS[-1]} are known")
    size, at = varint.take(data, at + 1, "the length of the flags")
    most = -(-LONGEST // width)
    if 8 * size > min(n, k * most) + 7:  # a gap takes no more groups than it is long
        raise CorruptError(f"{size} bytes of flags; {k} gaps within {n} entries take fewer")
    body = memoryview(data)
    more = unary.read(body[at : at + size], k, "group counts")
    at += size
    if more.max() >= most:
        raise CorruptError(f"a gap in {more.max() + 1} groups of {width} bits; {most} hold any")
    counts = np.concatenate(([0], np.bincount(more)))
    sizes = _sizes(counts, width)
    if len(data) < at + sum(sizes):
        raise TruncatedError(f"{len(data) - at} bytes of delta keys; {k} entries need {sum(sizes)}")
    group_of, gaps = more.astype(np.uint8), more
    for groups, (count, length) in enumerate(zip(counts[1:].tolist(), sizes, strict=True), 1):
        if count:
            payload = body[at : at + length]
            packing.check_padding(payload, count * groups * width, "delta keys")
            gaps[group_of == groups - 1] = _unpacked(payload, groups, width, count, n)
            at += length
    return ascend(gaps, n), at


def _unpacked(payload: memoryview, groups: int, width: int, count: int, n: int) -> NDArray[np.uint32]:
    """Return the `count` gaps of so many groups; refuse those that need fewer, and those longer than `n`."""
    found, least, length = np.empty(count, np.uint32), 1 << (groups - 1) * width, groups * width
    octets = np.frombuffer(payload, np.uint8)
    for start in range(0, count, BLOCK_ENTRIES):  # of whole bytes, whatever the width
        part = octets[start * length // 8 : -(-(start + BLOCK_ENTRIES) * length // 8)]
        block = packing.unpack(part, length, min(BLOCK_ENTRIES, count - start))
        if block.min() < least or block.max() > n:
            raise CorruptError(f"a gap in {groups} groups of {width} bits; it is {least} to {n}")
        found[start : start + BLOCK_ENTRIES] = block
    return found


def _sizes(counts: NDArray[np.int64], width: int) -> list[int]:
    """Return the bytes of the payloads of the gaps of one group, of two, and so on."""
    return [-(-count * groups * width // 8) for groups, count in enumerate(counts.tolist())][1:]
