"""Counts in unary: each as that many ones and a closing zero."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy.bits.byte_reader import Octets
from fedcomp.errors import CorruptError, TruncatedError


def write(blocks: Iterable[NDArray[Any]], bits: int) -> bytes:
    """Return the counts in `blocks`, which take `bits` bits; zeros fill up the last byte."""
    stream = np.ones(bits, np.uint8)
    start = 0
    for block in blocks:
        ends = block.astype(np.int64)
        ends += 1
        ends = np.cumsum(ends, out=ends)
        ends += start - 1
        stream[ends] = 0
        start = int(ends[-1]) + 1
    return np.packbits(stream).tobytes()


def read(octets: Octets, k: int, what: str) -> NDArray[np.int64]:
    """Return the `k` counts that fill `octets` up to the padding; `what` names them in errors."""
    ends = np.unpackbits(~octets).view(np.bool_).nonzero()[0]
    if ends.size < k:
        raise TruncatedError(f"{ends.size} {what}; {k} are needed")
    bits = int(ends[k - 1]) + 1
    if octets.size != -(-bits // 8) or ends.size - k != 8 * octets.size - bits:
        raise CorruptError(f"{octets.size} bytes of {what}; {k} of them take {bits} bits, and only zeros may follow")
    counts = ends[:k]
    for start in reversed(range(0, k, BLOCK_ENTRIES)):  # in place, from the back: a block needs the end before it
        before = counts[start - 1] if start else -1
        block = counts[start : start + BLOCK_ENTRIES]
        block[1:] -= block[:-1]
        block[0] -= before
        block -= 1
    return counts
