"""Integers of a fixed number of bits each, most significant bit first, padded with zeros to a whole byte."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits.byte_reader import Octets

BLOCK = 1 << 15
"""Values worked on at a time: they stay in the processor's cache."""
MAX_MATRIX_VALUES = 2048
"""Up to this many values a bit matrix is faster, since it takes fewer numpy calls."""

Unsigned = NDArray[np.unsignedinteger[Any]]


def size(count: int, width: int) -> int:
    """Return the bytes of `count` values of `width` bits."""
    return -(-count * width // 8)


def write(values: Unsigned, width: int) -> bytes:
    """Return the low `width` bits of each value, one after the other.

    Eight values make `width` bytes: each byte is gathered from the values that reach into it, for all groups at once.
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
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        part = octets[start * width // 8 : size(stop, width)]
        if width == 1:
            yield slice(start, stop), np.unpackbits(part, count=stop - start)
        else:
            yield slice(start, stop), read(part, width, stop - start)
