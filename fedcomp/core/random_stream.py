"""Random numbers that are the same for a seed on every machine and in every release.

They come from the raw output of PCG64, which is fixed for ever, not from numpy's distributions, which may change.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedcomp.core.types import Vector

HALF = np.uint64(32)


class RandomStream:
    """A stream of random numbers that begins at `seed`, any integer; each call goes on in the stream."""

    def __init__(self, *seed: int) -> None:
        """Begin the stream that belongs to `seed`: integers from 0 up, taken as one row of 32-bit words.

        So (7 + 2^32,) is (7, 1), and zeros at the end make no difference.
        """
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

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Return `k` different indices below `n` <= 2^32, ascending, every such set equally likely.

        Takes memory for a few words each: k bounds it, not n.
        """
        if not 0 <= k <= n:
            raise ValueError(f"{k} different indices below {n}; there are {n}")
        if 2 * k > n:
            left = np.ones(n, np.bool_)
            left[self.subset(n, n - k)] = False
            return np.flatnonzero(left)
        # Candidates in the order drawn; the first k different ones are a fair set.  Each carries its place in that order in
        # the low half of its word, so that one sort brings equal ones together, the one drawn first in front.
        found, order = np.empty(0, np.uint64), 0
        while found.size < k:
            fresh = self._below(n, _needed(n, k) if not order else k - found.size + 8)
            fresh <<= HALF
            fresh |= np.arange(order, order + fresh.size, dtype=np.uint64)
            found = np.concatenate((found, fresh)) if order else fresh
            order += fresh.size
            del fresh
            found.sort()
            index = found >> HALF
            first = np.ones(found.size, np.bool_)
            np.not_equal(index[1:], index[:-1], out=first[1:])
            del index
            found = found[first]
        if found.size > k:
            places = found & np.uint64(2**32 - 1)
            found = found[places <= np.partition(places, k - 1)[k - 1]]
        found >>= HALF
        return found.astype(np.int64)

    def _below(self, n: int, count: int) -> NDArray[np.uint64]:
        """Return at most `count` integers below `n`, each equally likely: words beyond a multiple of n are dropped."""
        limit = np.uint64(2**64 // n * n - 1)
        raw = np.asarray(self._bits.random_raw(count), np.uint64)
        if raw.max() > limit:
            raw = raw[raw <= limit]
        raw %= np.uint64(n)
        return raw


def _needed(n: int, k: int) -> int:
    """Return how many draws of `n` very likely hold `k` <= n / 2 different ones.

    A little more than n ln(n / (n - k)), in integers: the stream goes on behind as many draws on every machine.
    """
    series = k + k**2 // (2 * n) + k**3 // (3 * n**2) + k**4 // (4 * n**3) + 2 * k**5 // (5 * n**4)
    return series + 4 * math.isqrt(k) + 8
