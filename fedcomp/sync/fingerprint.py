"""64 bits that name a model, kept up to date in time proportional to what changed.

The fingerprint is the sum, modulo 2^64, of a mixed word for each entry of the vector (its index and its float32 bits), plus a
hash of the exact tensors.  Changing k entries changes k summands: a delta frame is checked in O(k).  It guards against forks
and mistakes, not against an attacker.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import BLOCK_ENTRIES, Vector
from fedcomp.quantized import Indices

WORD = (1 << 64) - 1


def fingerprint(vector: Vector, exact: bytes) -> int:
    """Return the 64 bits of a model."""
    total = exact_part(exact)
    for start in range(0, vector.size, BLOCK_ENTRIES):
        block = vector[start : start + BLOCK_ENTRIES]
        total += _sum(np.arange(start, start + block.size, dtype=np.int64), block)
    return total & WORD


def change(indices: Indices, old: Vector, new: Vector) -> int:
    """Return what to add, modulo 2^64, when the entries at `indices` go from `old` to `new`."""
    return (_sum(indices, new) - _sum(indices, old)) & WORD


def exact_part(exact: bytes) -> int:
    """Return the share of the exact tensors."""
    return int.from_bytes(hashlib.blake2b(exact, digest_size=8).digest(), "little") if exact else 0


def _sum(indices: Indices, values: Vector) -> int:
    """Return the sum of the mixed words (the finalizer of splitmix64; Steele, Lea, Flood, OOPSLA 2014)."""
    word: NDArray[np.uint64] = indices.astype(np.uint64)
    word <<= np.uint64(32)
    word |= values.astype("<f4", copy=False).view(np.uint32)
    word += np.uint64(0x9E3779B97F4A7C15)
    word ^= word >> np.uint64(30)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    word ^= word >> np.uint64(27)
    word *= np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return int(word.sum(dtype=np.uint64))
