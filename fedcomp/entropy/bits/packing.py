"""Integers as a row of bits, padded with zeros: at a fixed width, in unary, or several small digits as one number."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, block_slices
from fedcomp.entropy.bits.byte_reader import Octets
from fedcomp.errors import CorruptError, TruncatedError

BLOCK = 1 << 15
"""Values worked on at a time: they stay in the processor's cache."""
TUPLES = 1 << 13
"""Tuples worked on at a time."""
MAX_MATRIX_VALUES = 2048
"""Up to this many values a bit matrix is faster, since it takes fewer numpy calls."""

Unsigned = NDArray[np.unsignedinteger[Any]]


def size(count: int, width: int) -> int:
    """Return the bytes of `count` values of `width` bits."""
    return -(-count * width // 8)


def write(values: Unsigned, width: int) -> bytes:
    """Return the low `width` bits of each value, in order, the most significant bit first.

    Eight values make `width` bytes: each byte is gathered from the values that share it, for all groups at once.
    """
    if width == 1:
        return np.packbits(values & values.dtype.type(1)).tobytes()
    if values.size <= MAX_MATRIX_VALUES and width:
        places = np.arange(width - 1, -1, -1, dtype=values.dtype)
        return np.packbits((values[:, None] >> places & values.dtype.type(1)).astype(np.bool_)).tobytes()
    groups = -(-values.size // 8)
    table = np.zeros((groups, 8), values.dtype)
    table.reshape(-1)[: values.size] = values
    table &= values.dtype.type((1 << width) - 1)
    octets = np.zeros((groups, width), np.uint8)
    for place in range(8):
        begin, end = place * width, (place + 1) * width
        for byte in range(begin // 8, -(-end // 8)):
            shift = end - 8 * (byte + 1)
            part = table[:, place] >> shift if shift >= 0 else table[:, place] << -shift
            octets[:, byte] |= part.astype(np.uint8)
    return octets.tobytes()[: size(values.size, width)]


def read(octets: Octets, width: int, count: int) -> NDArray[np.int64]:
    """Return the `count` values of `width` bits that `write` wrote into `octets`; the padding is ignored."""
    if not width:
        return np.zeros(count, np.int64)
    if count <= MAX_MATRIX_VALUES and width < 63:
        matrix = np.unpackbits(octets, count=count * width).reshape(count, width)
        return matrix @ (np.int64(1) << np.arange(width - 1, -1, -1, dtype=np.int64))
    groups = -(-count // 8)
    padded = octets
    if octets.size < groups * width:
        padded = np.zeros(groups * width, np.uint8)
        padded[: octets.size] = octets
    columns = padded.reshape(groups, width)
    word: type[np.unsignedinteger[Any]] = np.uint32 if width <= 25 else np.uint64
    values = np.empty((groups, 8), np.int64)
    for place in range(8):
        begin, end = place * width, (place + 1) * width
        first, last = begin // 8, -(-end // 8)
        window = columns[:, first].astype(word)
        for byte in range(first + 1, last):
            np.left_shift(window, word(8), out=window)
            np.bitwise_or(window, columns[:, byte], out=window)
        np.right_shift(window, word(8 * last - end), out=window)
        np.bitwise_and(window, word((1 << width) - 1), out=values[:, place], casting="unsafe")
    return values.reshape(-1)[:count]


def read_blocks(octets: Octets, width: int, count: int) -> Iterator[tuple[slice, NDArray[np.integer[Any]]]]:
    """Yield (slice, its values) of the `count` values of `octets`, in blocks."""
    for block in block_slices(count, BLOCK):
        part, held = octets[block.start * width // 8 : size(block.stop, width)], block.stop - block.start
        yield block, np.unpackbits(part, count=held) if width == 1 else read(part, width, held)


def write_unary(blocks: Iterable[NDArray[Any]], bits: int) -> bytes:
    """Return the counts in `blocks` in unary, each as `count` ones and a zero: `bits` bits in all, padded with zeros."""
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


def read_unary(octets: Octets, k: int, what: str) -> NDArray[np.int64]:
    """Return the `k` counts that fill `octets` up to the padding; `what` names them in errors."""
    ends = np.unpackbits(~octets).view(np.bool_).nonzero()[0]
    if ends.size < k:
        raise TruncatedError(f"{ends.size} {what}; {k} are needed")
    bits = int(ends[k - 1]) + 1
    if octets.size != -(-bits // 8) or ends.size - k != 8 * octets.size - bits:
        raise CorruptError(f"{octets.size} bytes of {what}; {k} of them take {bits} bits, and only zeros may follow")
    counts = ends[:k]
    for start in reversed(range(0, k, BLOCK_ENTRIES)):  # in place, from the back: a block needs the last block's end
        before = counts[start - 1] if start else -1
        block = counts[start : start + BLOCK_ENTRIES]
        block[1:] -= block[:-1]
        block[0] -= before
        block -= 1
    return counts


def max_digits(base: int) -> int:
    """Return how many digits of `base` fit a byte."""
    length = 1
    while base > 1 and base ** (length + 1) <= 256:
        length += 1
    return length


def join_digits(digits: NDArray[np.unsignedinteger[Any]], base: int, length: int) -> Octets:
    """Return `digits`, `length` at a time, as numbers below ``base**length`` <= 256; the last number is padded with zeros."""
    count = -(-digits.size // length)
    if digits.size < count * length:
        digits = np.concatenate((digits, np.zeros(count * length - digits.size, digits.dtype)))
    columns = digits.reshape(count, length)
    joined = columns[:, 0].astype(np.uint8)
    for place in range(1, length):
        joined *= np.uint8(base)
        np.add(joined, columns[:, place], out=joined, casting="unsafe")
    return joined


def split_digits(joined: Octets, base: int, length: int, count: int) -> Iterator[tuple[slice, Octets]]:
    """Yield (slice, its digits) of the `count` digits of `joined`, in blocks; refuse padding digits other than zero."""
    table = _digits(base, length)
    for start in range(0, joined.size, TUPLES):
        digits = table.take(joined[start : start + TUPLES], axis=0, mode="clip").reshape(-1)
        begin, end = start * length, min((start + TUPLES) * length, count)
        if digits[end - begin :].any():
            raise CorruptError(f"a padding symbol of {digits[end - begin :].max()} in the last tuple; it is 0")
        yield slice(begin, end), digits[: end - begin]


@lru_cache(maxsize=16)
def _digits(base: int, length: int) -> Octets:
    """Return the digits of each number, uint8 (base**length, length)."""
    digits = np.ascontiguousarray(np.indices((base,) * length, np.uint8).reshape(length, -1).T)
    digits.flags.writeable = False
    return digits
