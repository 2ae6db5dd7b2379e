"""Whole numbers of 1 and more in Elias' gamma code, with their lengths in a code of their own.

P. Elias, "Universal codeword sets and representations of the integers", IEEE Trans. Inf. Theory 21, 1975.  A number of
length L = floor(log2(number)) has L bits below its highest bit, 2^L.  Elias writes L in unary; here the lengths are a stream of
symbols of their own, which takes about their entropy.  The low bits follow: first the bits of all numbers of length 1, then of
length 2, and so on, each length padded to whole bytes.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import block_slices
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes.plain_alphabet import histogram

Numbers = NDArray[np.integer[Any]]
MAX_LENGTH = 31
FEW_LENGTHS = 8
"""Up to this number of different lengths, finding the numbers of one length at a time is faster than a sort."""
Lengths = NDArray[np.uint8]
Counts = NDArray[np.int64]


def lengths_of(numbers: Numbers) -> Lengths:
    """Return floor(log2(number)) of each number, 1 to 2^32 - 1."""
    lengths = np.empty(numbers.size, np.uint8)
    for part in block_slices(numbers.size):
        exponents = numbers[part].astype(np.float64).view(np.int64)  # exact
        exponents >>= 52
        exponents -= 1023
        lengths[part] = exponents
    return lengths


def low_bytes(counts: Counts) -> int:
    """Return the bytes of the low bits; `counts` says how many numbers have length 0, 1, 2 ..."""
    return sum(packing.size(count, length) for length, count in enumerate(counts.tolist()))


def write_low_bits(numbers: Numbers, lengths: Lengths) -> Iterator[bytes]:
    """Yield the bits below the highest one of each number, the numbers of length 1 first."""
    groups = list(_groups(lengths))
    ordered = numbers[np.argsort(lengths, kind="stable")] if len(groups) > FEW_LENGTHS else None
    for length, part in groups:
        found = numbers[np.flatnonzero(lengths == length)] if ordered is None else ordered[part]
        for block in block_slices(found.size):  # of whole bytes, whatever the length
            yield packing.write(found[block].astype(np.uint32, copy=False), length)


def read_low_bits(reader: ByteReader, lengths: Lengths, what: str, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Return the numbers of these lengths, at most `MAX_LENGTH`, whose lower bits follow, as `dtype`."""
    numbers = np.ones(lengths.size, dtype)
    for length, part in _groups(lengths):
        count = part.stop - part.start
        blocks = packing.read_blocks(reader.bits(count * length, what), length, count)
        ready = np.empty(0, np.int64)  # numbers of this length that have not found their places
        for here in block_slices(lengths.size, packing.BLOCK):
            places = np.flatnonzero(lengths[here] == length)
            while ready.size < places.size:
                ready = np.concatenate((ready, next(blocks)[1].astype(np.int64)))
            numbers[here][places] = ready[: places.size] | 1 << length
            ready = ready[places.size :]
    return numbers


def _groups(lengths: Lengths) -> Iterator[tuple[int, slice]]:
    """Yield (length, slice of its numbers) for each length above 0; the slices are of numbers sorted by length."""
    ends = np.cumsum(histogram(lengths, MAX_LENGTH + 1)).tolist()
    for length, (start, end) in enumerate(pairwise(ends), 1):
        if end > start:
            yield length, slice(start, end)
