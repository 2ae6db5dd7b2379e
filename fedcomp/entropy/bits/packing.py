"""Bits and bytes, in numpy: most significant bit first everywhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError

FEW = 2048
"""Up to so many values a bit matrix is faster: what counts is the number of numpy's calls, not their work."""

Unsigned = NDArray[np.unsignedinteger[Any]]


def pack(values: Unsigned, width: int) -> bytes:
    """Return the low `width` bits of each value, one after the other, padded with zeros to whole bytes.

    Eight values make `width` bytes: each byte is gathered from the values that reach into it, for all groups at once.
    """
    if values.size <= FEW and width:
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
    return octets.tobytes()[: -(-values.size * width // 8)]


def unpack(octets: NDArray[np.uint8], width: int, count: int) -> NDArray[np.int64]:
    """Return the `count` values of `width` bits that `pack` wrote into `octets`; the padding is not looked at."""
    if count <= FEW and 0 < width < 63:
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


def flags(data: bytes, count: int, what: str) -> NDArray[np.bool_]:
    """Return the `count` bits of `data`, whose padding must be zero; `what` names the stream in errors."""
    check_padding(data, count, what)
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(np.bool_)


def check_padding(data: bytes | memoryview, count: int, what: str) -> None:
    """Refuse `data` unless it is `count` bits and zeros up to a whole byte."""
    if len(data) != -(-count // 8):
        raise CorruptError(f"{what}: {len(data)} bytes; {count} bits need {-(-count // 8)}")
    if count % 8 and data[-1] & (255 >> count % 8):
        raise CorruptError(f"{what}: the padding bits are not zero")
