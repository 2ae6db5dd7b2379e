"""Counts in unary: each as that many ones, closed by a zero."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES
from fedcomp.errors import CorruptError, TruncatedError


def write(counts: Iterable[NDArray[Any]], size: int) -> bytes:
    """Return `counts`, which come in blocks and take `size` bits, zeros up to a whole byte."""
    stream = np.ones(size, np.uint8)
    start = 0
    for block in counts:
        ends = block.astype(np.int64)
        ends += 1
        ends = np.cumsum(ends, out=ends)
        ends += start - 1
        stream[ends] = 0
        start = int(ends[-1]) + 1
    return np.packbits(stream).tobytes()


def read(data: memoryview, k: int, what: str) -> NDArray[np.int64]:
    """Return the `k` counts that fill `data` but for the padding; `what` names them in errors."""
    ends = np.unpackbits(~np.frombuffer(data, np.uint8)).view(np.bool_).nonzero()[0]
    if ends.size < k:
        raise TruncatedError(f"{ends.size} {what}; {k} are needed")
    used = int(ends[k - 1]) + 1
    if len(data) != -(-used // 8) or ends.size - k != 8 * len(data) - used:
        raise CorruptError(f"{len(data)} bytes of {what}; {k} of them end after {used} bits, and zeros follow")
    counts = ends[:k]
    for start in reversed(range(0, k, BLOCK_ENTRIES)):  # in place, from the back: a block needs the end before it
        before = counts[start - 1] if start else -1
        block = counts[start : start + BLOCK_ENTRIES]
        block[1:] -= block[:-1]
        block[0] -= before
        block -= 1
    return counts
