"""What the golden files hold, written down as integer arithmetic: no random generator that could change under them."""

import numpy as np
from numpy.typing import NDArray

from fedcomp.quantized import Seeded, Sparse, SparseLevels, Steps, Ternary, geometric

N = 40_000


def hashed(count: int) -> list[int]:
    """Return `count` integers below 2^16 that look random: the high half of i times Knuth's constant, mixed once."""
    words = ((i + 1) * 2654435761 % 2**32 for i in range(count))
    return [(word ^ word >> 15) * 2246822519 % 2**32 >> 16 for word in words]


def update(n: int) -> NDArray[np.float32]:
    """Return multiples of 1/1024 from -1 to 1: sums of them are exact in any order."""
    return np.array([(value % 2049 - 1024) / 1024 for value in hashed(n)], np.float32)


def ternary() -> Ternary:
    """Return 1300 kept entries: two full chunks, one dense and one mixed, and a sparse third of 276."""
    offset, indices, negative = -1, [], []
    for order, value in enumerate(hashed(1300)):
        offset += 1 + (value % 3 if order < 512 else value % 40 if order < 1024 else value % 150)
        indices.append(offset)
        negative.append(bool(value & 4096))
    return Ternary(N, np.array(indices, np.int64), np.array(negative), np.float32(0.15625))


def sparse() -> Sparse:
    """Return the entries of `ternary()`, each a third of a multiple of 1/1024: 24 significant bits."""
    return Sparse(N, ternary().indices, update(1300) / np.float32(3))


def half_of_them() -> Sparse:
    """Return every other entry of 2000, more or less: values of 8 significant bits, some of them zero."""
    values = hashed(2000)
    indices = np.array([index for index, value in enumerate(values) if value & 1], np.int64)
    return Sparse(2000, indices, np.array([(values[index] % 511 - 255) / 64 for index in indices], np.float32))


def clustered() -> Sparse:
    """Return 300 entries of N in runs of ten neighbours, far apart: values of 11 significant bits, times 2^-40."""
    offset, indices = -1, []
    for order, value in enumerate(hashed(300)):
        offset += 1 if order % 10 else 1 + value % 2048
        indices.append(offset)
    return Sparse(N, np.array(indices, np.int64), update(300) * np.float32(2**-40))


def ternary_clusters() -> Ternary:
    """Return the entries of `clustered()` as plus or minus 2^-5: every third one is negative."""
    indices = clustered().indices
    return Ternary(N, indices, np.arange(indices.size) % 3 == 0, np.float32(2**-5))


def powers() -> Sparse:
    """Return all of 100 entries, each 2^-3 or -2^-4."""
    values = np.array([1 / 8 if value & 4 else -1 / 16 for value in hashed(100)], np.float32)
    return Sparse(100, np.arange(100), values)


def levels() -> SparseLevels:
    """Return the entries of `ternary()`, each of four magnitudes about equally often."""
    entries, level = ternary(), np.array([value >> 6 & 3 for value in hashed(1300)], np.uint8)
    return SparseLevels(N, entries.indices, entries.negative, level, np.array([0.75, 0.5, 0.1, 0.02], np.float32))


def series() -> SparseLevels:
    """Return the entries of `clustered()`, each of 16 magnitudes: 3, each of the others 1.5 times less than the one before."""
    values = hashed(300)
    negative, level = np.array([value & 1 == 1 for value in values]), np.array([value >> 8 & 15 for value in values])
    magnitudes = geometric(np.float32(3), 1.5, 16)
    return SparseLevels(N, clustered().indices, negative, level.astype(np.uint8), magnitudes, 1.5)


def raw(count: int) -> list[int]:
    """Return the first words of PCG64 from the state that numpy's SeedSequence gives to 2^63 + 5."""
    state, words = 0xDA3FBBD7A00E04EF1F54F7EDF9E1ADCC, []
    for _ in range(count):
        state = (state * 0x2360ED051FC65DA44385DF649FCCF645 + 0x90591FA7D97BEF81F963ED7BA1DEEA5D) % 2**128
        word, turn = (state >> 64 ^ state) % 2**64, state >> 122
        words.append((word >> turn | word << 64 - turn) % 2**64)
    return words


def seeded() -> Seeded:
    """Return 150 of N entries, the seed 2^63 + 5: the first different ones of the raw words modulo N."""
    indices = sorted(list(dict.fromkeys(word % N for word in raw(160)))[:150])
    return Seeded(N, 2**63 + 5, np.array(indices, np.int64), update(150) / np.float32(3))


def steps(n: int = N, shift: int = 5) -> Steps:
    """Return the entries of `ternary()` below `n`, counts of 1 to 4 bits, each length about equally often, times 2^shift."""
    values = hashed(1300)
    counts = [((value & 15 | 16) >> 4 - (value >> 6 & 3) << shift) * (-1 if value & 4096 else 1) for value in values]
    kept = ternary().indices < n
    return Steps(n, ternary().indices[kept], np.array(counts, np.int32)[kept])


def activations() -> NDArray[np.float32]:
    """Return the activations of 8 samples, 12 each; both ends hold half of what the first six have."""
    return update(96).reshape(8, 12)


UPDATE = update(N)
MODEL: dict[str, NDArray[np.generic]] = {
    "norm.num_batches_tracked": np.array(1233, np.int64),
    "conv.weight": update(600).reshape(10, 3, 4, 5),
    "norm.running_var": update(10) ** 2,
    "empty": np.zeros((0, 7), np.float32),
    "half": update(20).astype(np.float16),
    "double": update(21).astype(np.float64).reshape(3, 7),
    "scale": np.array(0.5, np.float32),
    "mask": np.array([True, False, True]),
    "head.weight": update(30).reshape(3, 10),
}
