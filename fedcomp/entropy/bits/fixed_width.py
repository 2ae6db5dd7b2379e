"""Symbols in as many bits each as tell them apart, in blocks that stay in the processor's cache."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy.bits import packing

BLOCK = 1 << 15


def size(count: int, width: int) -> int:
    """Return the bytes of `count` symbols."""
    return -(-count * width // 8)


def write(blocks: Iterable[NDArray[np.unsignedinteger[Any]]], width: int) -> Iterator[bytes]:
    """Yield the bytes of symbols that come in blocks of `BLOCK`, the last one of what is left."""
    for block in blocks:
        yield np.packbits(block).tobytes() if width == 1 else packing.pack(block, width)


def read(octets: NDArray[np.uint8], width: int, count: int) -> Iterator[tuple[slice, NDArray[np.integer[Any]]]]:
    """Yield (part, its symbols) of the `count` symbols of `octets`."""
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        part = octets[start * width // 8 : -(-stop * width // 8)]
        if width == 1:
            yield slice(start, stop), np.unpackbits(part, count=stop - start)
        else:
            yield slice(start, stop), packing.unpack(part, width, stop - start)
