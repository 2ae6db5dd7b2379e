"""A 64-bit fingerprint of a model: the sum, modulo 2^64, of a mixed word per entry, plus a hash of the exact tensors.

A word is an entry's index and its float32 bits.  Changing k entries changes k summands, so a delta frame is verified in O(k).
It detects forks and mistakes; it is not a defence against an attacker.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, block_slices
from fedcomp.quantized import Indices

MODULUS_MASK = (1 << 64) - 1
"""``total & MODULUS_MASK`` is a sum modulo 2^64."""


def fingerprint(vector: Vector, exact: bytes) -> int:
    """Return the fingerprint of a model, 0 to 2^64 - 1."""
    total = exact_part(exact)
    for part in block_slices(vector.size):
        total += _sum_of_words(np.arange(part.start, part.stop, dtype=np.int64), vector[part])
    return total & MODULUS_MASK


def change(indices: Indices, old: Vector, new: Vector) -> int:
    """Return the change of the fingerprint, modulo 2^64, when the entries at `indices` change from `old` to `new`."""
    return (_sum_of_words(indices, new) - _sum_of_words(indices, old)) & MODULUS_MASK


def exact_part(exact: bytes) -> int:
    """Return the summand of the exact tensors."""
    return int.from_bytes(hashlib.blake2b(exact, digest_size=8).digest(), "little") if exact else 0


def _sum_of_words(indices: Indices, values: Vector) -> int:
    """Return the sum of the words, mixed by the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
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
