"""How much of a change is in its largest entries: these are what a sparse version sends."""

import numpy as np

from fedcomp.core import Vector

GAUSSIAN = 0.0845
"""The share of the squared norm in the largest hundredth of Gaussian entries."""
FEWEST, MAX_NOISE = 1000, 0.5
"""With fewer entries the share is a matter of chance, and with a larger share of noise it cannot be told."""


def largest_share(change: Vector, noise: float, entries: int) -> float:
    """Return the share of the squared norm of `change`, float32 (n,), in the largest hundredth of the `entries` that learn.

    `noise` is the expected squared error in the change.  It spreads like Gaussian entries, and its part is taken off.  Returns
    0 if there are too few entries, or too much noise, to tell.
    """
    sizes, entries = np.abs(change), min(entries, change.size)
    total = float(np.square(sizes, dtype=np.float64).sum())
    if entries < FEWEST or not total or noise > MAX_NOISE * total:
        return 0.0
    count, part = entries // 100, noise / total
    largest = np.partition(sizes, sizes.size - count)[-count:]
    share = float(np.square(largest, dtype=np.float64).sum()) / total
    return min(1.0, max(0.0, share - GAUSSIAN * part) / (1 - part))
