"""Random numbers that are the same for a seed on every machine and in every release.

They come from the raw output of PCG64, which is fixed for ever, not from numpy's distributions, which may change.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedcomp.stage import Vector


class Draws:
    """A stream of random numbers that begins at `seed`, any integer; each call goes on in the stream."""

    def __init__(self, *seed: int) -> None:
        """Begin the stream that belongs to `seed`: integers from 0 up."""
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return `count` words of 32 random bits."""
        raw = np.asarray(self._bits.random_raw(-(-count // 2)), "<u8")
        return raw.view("<u4").astype(np.uint32, copy=False)[:count]

    def uniform(self, count: int) -> Vector:
        """Return `count` numbers of [0, 1), float32: multiples of 2^-24."""
        words = self.words(count)
        words >>= np.uint32(8)
        uniform = words.astype(np.float32)
        uniform *= np.float32(2**-24)
        return uniform

    def signs(self, count: int) -> NDArray[np.bool_]:
        """Return `count` fair coins."""
        words = np.asarray(self._bits.random_raw(-(-count // 64)), "<u8")
        return np.unpackbits(np.atleast_1d(words).view(np.uint8), count=count).view(np.bool_)

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Return `k` different indices below `n`, ascending, every such set equally likely."""
        if 2 * k > n:
            left = np.ones(n, np.bool_)
            left[self.subset(n, n - k)] = False
            return np.flatnonzero(left)
        chosen = np.empty(0, np.int64)
        while chosen.size < k:
            # Candidates in the order drawn; the first k different ones are a fair set.
            fresh = np.concatenate([chosen, *self._below(n, k - chosen.size)])
            _, first = np.unique(fresh, return_index=True)
            first.sort()
            chosen = fresh[first[:k]]
        return np.sort(chosen)

    def _below(self, n: int, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield about `count` integers below `n`, each equally likely: words beyond a multiple of n are dropped."""
        limit = np.uint64(2**64 // n * n - 1) if n > 1 else np.uint64(2**64 - 1)
        raw = np.atleast_1d(np.asarray(self._bits.random_raw(count + count // 8 + 8), np.uint64))
        yield (raw[raw <= limit] % np.uint64(n)).astype(np.int64)
