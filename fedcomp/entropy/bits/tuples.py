"""Several small digits as one number, the first digit the highest."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits.byte_reader import Octets
from fedcomp.errors import CorruptError

BLOCK = 1 << 13
"""Tuples worked on at a time."""


def max_length(base: int) -> int:
    """Return how many digits of `base` fit a byte."""
    length = 1
    while base > 1 and base ** (length + 1) <= 256:
        length += 1
    return length


def join(digits: NDArray[np.unsignedinteger[Any]], base: int, length: int) -> Octets:
    """Return `digits`, `length` at a time, as numbers below ``base**length`` <= 256; zeros fill up the last number."""
    count = -(-digits.size // length)
    if digits.size < count * length:
        digits = np.concatenate((digits, np.zeros(count * length - digits.size, digits.dtype)))
    columns = digits.reshape(count, length)
    joined = columns[:, 0].astype(np.uint8)
    for place in range(1, length):
        joined *= np.uint8(base)
        np.add(joined, columns[:, place], out=joined, casting="unsafe")
    return joined


def split(joined: Octets, base: int, length: int, count: int) -> Iterator[tuple[slice, Octets]]:
    """Yield (slice, its digits) of the `count` digits of `joined`, in blocks; refuse padding digits other than zero."""
    table = _digits(base, length)
    for start in range(0, joined.size, BLOCK):
        digits = table.take(joined[start : start + BLOCK], axis=0, mode="clip").reshape(-1)
        begin, end = start * length, min((start + BLOCK) * length, count)
        if digits[end - begin :].any():
            raise CorruptError(f"a padding symbol of {digits[end - begin :].max()} in the last tuple; it is 0")
        yield slice(begin, end), digits[: end - begin]


@lru_cache(maxsize=16)
def _digits(base: int, length: int) -> Octets:
    """Return the digits of each number, uint8 (base**length, length)."""
    count = int(base**length)
    powers = np.power(base, np.arange(length - 1, -1, -1))
    digits = np.empty((count, length), np.uint8)
    digits[...] = np.arange(count)[:, None] // powers % base
    digits.flags.writeable = False
    return digits
