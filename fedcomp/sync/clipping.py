"""The norm of an update, exact tensors included: differential privacy bounds the update as a whole."""

import math

import numpy as np

from fedcomp.errors import CorruptError
from fedcomp.quantized import l2_norm
from fedcomp.sync.replica import Replica
from fedcomp.sync.updates import Update
from fedcomp.wire import BFLOAT16, Layout, bfloat16_to_float32

TOLERANCE = 1e-6
"""The relative excess that rounding may cause."""


def clip_exact(exact: bytes, published: Replica, max_norm: float) -> tuple[bytes, float]:
    """Return the exact tensors to send, and the norm that is left for the vector, at least 0.

    Integers and bools stay as published, because they cannot be scaled: one step of a counter is longer than most norms.
    So do the others (BatchNorm statistics) if their change alone is longer than `max_norm`.
    """
    layout = published.layout
    trained, held = layout.unflatten_exact(exact), layout.unflatten_exact(published.exact)
    exact = layout.exact_bytes({name: held[name] if held[name].dtype.kind in "iub" else trained[name] for name in held})
    distance = _distance(exact, published.exact, layout)
    if distance > max_norm * (1 + TOLERANCE):
        return published.exact, max_norm
    return exact, math.sqrt(max(0.0, max_norm**2 - distance**2))


def check_norm(update: Update, published: Replica, max_norm: float) -> None:
    """Raise `CorruptError` for an update that is longer than `max_norm`, as from a node that does not bound what it sends."""
    norm = math.hypot(l2_norm(update.change), _distance(update.exact, published.exact, published.layout))
    if not norm <= max_norm * (1 + TOLERANCE) ** 2:
        raise CorruptError(
            f"its update has norm {norm:g}; the clipping norm is {max_norm:g}: update fedcomp on the node"
        )


def _distance(first: bytes, second: bytes, layout: Layout) -> float:
    """Return the l2 norm of the difference of exact tensors."""
    if first == second:
        return 0.0
    total = 0.0
    for arrays in zip(layout.unflatten_exact(first).values(), layout.unflatten_exact(second).values(), strict=True):
        new, old = (
            np.asarray(bfloat16_to_float32(one) if one.dtype == BFLOAT16 else one, np.float64) for one in arrays
        )
        total += float(np.square(new - old).sum())
    return math.sqrt(total)
