"""Random numbers that are the same for a seed on every machine and in every release.

They are made from the raw output of PCG64, which never changes.  The output of numpy's distributions may change.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedcomp.core.types import Vector

HALF_BITS = np.uint64(32)
MIN_MARKED_DENSITY = 1 / 64
"""The share of the indices from which on a mask of all of them takes less time than a sort of the candidates."""


class RandomStream:
    """A stream of random numbers; each call continues where the last one stopped."""

    def __init__(self, *seed: int) -> None:
        """Start the stream of `seed`: integers, at least 0, joined into one sequence of 32-bit words.

        So (7 + 2^32,) and (7, 1) start the same stream, and trailing zeros make no difference.
        """
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return `count` words of 32 random bits, uint32 (count,)."""
        raw = np.asarray(self._bits.random_raw(-(-count // 2)), "<u8")
        return raw.view("<u4").astype(np.uint32, copy=False)[:count]

    def uniform(self, count: int) -> Vector:
        """Return `count` numbers in [0, 1), float32 (count,), multiples of 2^-24."""
        words = self.words(count)
        words >>= np.uint32(8)
        uniform = words.astype(np.float32)
        uniform *= np.float32(2**-24)
        return uniform

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Return `k` different indices below `n` <= 2^32, int64 (k,), ascending; every such set is equally likely.

        Takes memory for about ten words an index, whatever `n` is.  Raises `ValueError` unless 0 <= k <= n.
        """
        if not 0 <= k <= n:
            raise ValueError(f"{k} different indices below {n}; 0 to {n} are possible")
        if 2 * k > n:
            chosen = np.ones(n, np.bool_)
            chosen[self.subset(n, n - k)] = False
            return np.flatnonzero(chosen)
        return self._marked(n, k) if k >= MIN_MARKED_DENSITY * n else self._sorted(n, k)

    def _marked(self, n: int, k: int) -> NDArray[np.int64]:
        """Return the first `k` different candidates, in the order drawn, marked in a mask of `n` bytes."""
        chosen, found = np.zeros(n, np.bool_), 0
        while found < k:
            fresh = self._below(n, k - found + 8 if found else _needed(n, k))
            while found < k and fresh.size:
                missing = k - found  # of this many candidates, all are needed
                chosen[fresh[:missing]] = True
                found, fresh = int(np.count_nonzero(chosen)), fresh[missing:]
        return np.flatnonzero(chosen)

    def _sorted(self, n: int, k: int) -> NDArray[np.int64]:
        """Return the first `k` different candidates, in the order drawn, in memory for a few words an index."""
        # Each candidate carries its place in the order in the low half of its word, so that one sort puts equal ones side by
        # side, the first drawn in front.
        found, order = np.empty(0, np.uint64), 0
        while found.size < k:
            fresh = self._below(n, _needed(n, k) if not order else k - found.size + 8)
            fresh <<= HALF_BITS
            fresh |= np.arange(order, order + fresh.size, dtype=np.uint64)
            found = np.concatenate((found, fresh)) if order else fresh
            order += fresh.size
            del fresh
            found.sort()
            index = found >> HALF_BITS
            first = np.ones(found.size, np.bool_)
            np.not_equal(index[1:], index[:-1], out=first[1:])
            del index
            found = found[first]
        if found.size > k:
            places = found & np.uint64(2**32 - 1)
            found = found[places <= np.partition(places, k - 1)[k - 1]]
        found >>= HALF_BITS
        return found.astype(np.int64)

    def _below(self, n: int, count: int) -> NDArray[np.uint64]:
        """Return at most `count` integers below `n`, each equally likely: words above the last multiple of n are dropped."""
        limit = np.uint64(2**64 // n * n - 1)
        raw = np.asarray(self._bits.random_raw(count), np.uint64)
        if raw.max() > limit:
            raw = raw[raw <= limit]
        raw %= np.uint64(n)
        return raw


def _needed(n: int, k: int) -> int:
    """Return a number of draws below `n` that very likely holds `k` <= n / 2 different ones.

    It is a little above n ln(n / (n - k)), and computed in integers: every machine must consume as many draws.
    """
    series = k + k**2 // (2 * n) + k**3 // (3 * n**2) + k**4 // (4 * n**3) + 2 * k**5 // (5 * n**4)
    return series + 4 * math.isqrt(k) + 8
