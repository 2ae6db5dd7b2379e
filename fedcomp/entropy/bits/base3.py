"""Five trits a byte: 243 of the 256 values, so 1.6 bits for each, where log2(3) = 1.585 is the least."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import tuples

TRITS = 5
BLOCK = TRITS * tuples.BLOCK
"""Trits worked on at a time."""


def size(count: int) -> int:
    """Return the bytes of `count` trits."""
    return -(-count // TRITS)


def write(trits: NDArray[np.unsignedinteger[Any]]) -> bytes:
    """Return the trits 0, 1, 2, five a byte with the first one highest; zeros fill up the last byte."""
    return tuples.join(trits, 3, TRITS).tobytes()


def read(octets: tuples.Octets, count: int) -> Iterator[tuple[slice, tuples.Octets]]:
    """Yield (part, its trits) of the `count` trits of `octets`, of which there are as many as they need."""
    return tuples.split(octets, 3, TRITS, count)
