"""Arrays of a node's state as Flower's: those that are mostly zero, as the residual of frozen tensors, by their blocks.

Zero means zero bytes: the sign of -0.0 is kept.
"""

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, block_slices
from fedcomp.errors import CorruptError

STYPE = "fedcomp.state/1"
BLOCKS_STYPE = "fedcomp.blocks/1"
"""The type of an array (n,) that holds a byte for each block of `BLOCK_ENTRIES`, 1 for one that is not all zeros, and those."""
MAX_SHARE = 0.5
"""The largest share of blocks that are written by themselves."""


def stored(array: NDArray[np.generic]) -> Array:
    """Return `array` with its bytes, or with the bytes of the blocks that are not zero."""
    if array.ndim == 1 and array.size > BLOCK_ENTRIES:
        words = np.ascontiguousarray(array).view(f"u{array.itemsize}")
        filled = np.array([words[part].any() for part in block_slices(array.size)], np.uint8)
        if filled.sum() <= MAX_SHARE * filled.size:
            blocks = (
                array[start : start + BLOCK_ENTRIES].tobytes() for start in np.flatnonzero(filled) * BLOCK_ENTRIES
            )
            return Array(str(array.dtype), array.shape, BLOCKS_STYPE, b"".join((filled.tobytes(), *blocks)))
    return Array(str(array.dtype), array.shape, STYPE, array.tobytes())


def restored(array: Array) -> NDArray[np.generic]:
    """Return the array that `stored` wrote, writable; raise one of `CORRUPTION_ERRORS` for other bytes."""
    if array.stype != BLOCKS_STYPE:
        return np.frombuffer(bytearray(array.data), array.dtype).reshape(array.shape)
    whole = np.zeros(array.shape, array.dtype)
    count = -(-whole.size // BLOCK_ENTRIES)
    filled, offset = np.frombuffer(array.data, np.uint8, count), count
    for start in np.flatnonzero(filled) * BLOCK_ENTRIES:
        block = whole[start : start + BLOCK_ENTRIES]
        block[:] = np.frombuffer(array.data, array.dtype, block.size, offset)
        offset += block.nbytes
    if offset != len(array.data):
        raise CorruptError(f"{len(array.data)} bytes of stored blocks; {offset} are needed")
    return whole
