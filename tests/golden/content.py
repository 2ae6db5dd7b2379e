"""What the golden files hold, written down as integer arithmetic: no random generator that could change under them."""

import numpy as np
from numpy.typing import NDArray

from fedcomp.symbols import Ternary

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
    at, indices, negative = -1, [], []
    for order, value in enumerate(hashed(1300)):
        at += 1 + (value % 3 if order < 512 else value % 40 if order < 1024 else value % 150)
        indices.append(at)
        negative.append(bool(value & 4096))
    return Ternary(N, np.array(indices, np.int64), np.array(negative), np.float32(0.15625))


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
