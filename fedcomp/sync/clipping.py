"""The exact tensors' share of an update's norm: differential privacy bounds the update as a whole."""

import math

import numpy as np

from fedcomp.sync.replica import Replica
from fedcomp.wire import BFLOAT16, bfloat16_to_float32

TOLERANCE = 1e-6
"""The relative excess that rounding may cause."""


def clip_exact(exact: bytes, published: Replica, max_norm: float) -> tuple[bytes, float]:
    """Return the exact tensors to send, and the norm that is left for the vector, at least 0.

    Integers and bools stay as published, because they cannot be scaled: one step of a counter is longer than most norms.
    So do the others (BatchNorm statistics) if their change alone is longer than `max_norm`.
    """
    layout = published.layout
    trained, held = layout.unflatten_exact(exact), layout.unflatten_exact(published.exact)
    total = 0.0
    for name, array in trained.items():
        if array.dtype.kind in "iub":
            trained[name] = held[name]
            continue
        new, old = (bfloat16_to_float32(a) if a.dtype == BFLOAT16 else a for a in (array, held[name]))
        total += float(np.square(np.subtract(new, old, dtype=np.float64)).sum())
    if math.sqrt(total) > max_norm * (1 + TOLERANCE):
        return published.exact, max_norm
    return layout.exact_bytes(trained), math.sqrt(max(0.0, max_norm**2 - total))
