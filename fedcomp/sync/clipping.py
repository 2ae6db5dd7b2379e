"""The norm of an update, exact tensors included: differential privacy and robust averages bound the update as a whole."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcomp.core import check_range, use_python_numbers
from fedcomp.errors import CorruptError
from fedcomp.quantized import l2_norm
from fedcomp.sync.exact_tensors import float_values, widened
from fedcomp.sync.replica import Replica
from fedcomp.sync.updates import Update
from fedcomp.wire import BFLOAT16, Layout, bfloat16_to_float32

TOLERANCE = 1e-6
"""The relative excess that rounding may cause."""


def clip_exact(exact: bytes, published: Replica, max_norm: float) -> tuple[bytes, float]:
    """Return the exact tensors to send, and the norm that is left for the vector, at least 0.

    Integers and bools stay as published, because they cannot be scaled: one step of a counter is longer than most norms.
    The other exact tensors (BatchNorm statistics) stay as published if their change alone is longer than `max_norm`.
    """
    layout = published.layout
    trained, held = layout.unflatten_exact(exact), layout.unflatten_exact(published.exact)
    exact = layout.exact_bytes({name: held[name] if held[name].dtype.kind in "iub" else trained[name] for name in held})
    distance = _distance(exact, published.exact, layout)
    if distance > max_norm * (1 + TOLERANCE):
        return published.exact, max_norm
    return exact, math.sqrt(max(0.0, max_norm**2 - distance**2))


def check_norm(update: Update, published: Replica, max_norm: float) -> None:
    """Raise `CorruptError` for an update longer than `max_norm`, such as from a node that does not bound its updates."""
    norm = math.hypot(l2_norm(update.change), _distance(update.exact, published.exact, published.layout))
    if not norm <= max_norm * (1 + TOLERANCE) ** 2:
        raise CorruptError(
            f"its update has norm {norm:g}; the clipping norm is {max_norm:g}: update fedcomp on the node"
        )


@dataclass(frozen=True, slots=True)
class Clipping:
    """Bounds the l2 norm of each update before it is averaged, so that no node can move the mean arbitrarily far.

    An update that is longer is scaled down to the bound: norm bounding as in Sun, Kairouz, Suresh, McMahan, "Can You Really
    Backdoor Federated Learning?", arXiv:1911.07963.

    Attributes:
        norm: The largest norm; 0 for no bound.
        median: The largest norm as a multiple of the median norm of those updates of the round that change something; 0 for no
            bound.  It needs no knowledge of the task, and a minority of the nodes cannot move the median far.

    Raises:
        ValueError: A number below 0.

    Examples:
        >>> Clipping(median=3)
        Clipping(norm=0.0, median=3)
    """

    norm: float = 0.0
    median: float = 0.0

    def __post_init__(self) -> None:
        use_python_numbers(self)
        check_range("norm", self.norm, least=0, what="the largest norm of an update, 0 for no bound")
        check_range("median", self.median, least=0, what="a multiple of the median norm, 0 for no bound")

    def __bool__(self) -> bool:
        return self.norm > 0 or self.median > 0

    def scales(self, updates: Sequence[Update], published: Replica) -> list[float]:
        """Return the factor of each update, at most 1: an update beyond the bound is scaled down to it."""
        norms = [_norm(update, published) for update in updates]
        bound = self.norm or math.inf
        if self.median and norms:
            bound = min(bound, self.median * statistics.median([norm for norm in norms if norm] or [0.0]))
        return [bound / norm if norm > bound else 1.0 for norm in norms]


def scaled(update: Update, factor: float, published: Replica) -> Update:
    """Return `update` with `factor` times its change; its exact floats are moved towards the published floats likewise."""
    layout = published.layout
    held, new = layout.unflatten_exact(published.exact), layout.unflatten_exact(update.exact)
    base, floats = float_values(held), float_values(new)
    moved = {name: base[name] + factor * (widened(floats[name]) - base[name]) for name in floats}
    return replace(update, factor=update.factor * factor, exact=layout.exact_bytes(new | moved))


def _norm(update: Update, published: Replica) -> float:
    """Return the l2 norm of the change of all floats.  Integers and bools are not counted: they are no parameters."""
    layout = published.layout
    new, old = (float_values(layout.unflatten_exact(exact)) for exact in (update.exact, published.exact))
    squares = (float(np.square(np.abs(widened(new[name]) - old[name])).sum()) for name in new)
    return math.hypot(l2_norm(update.change), math.sqrt(sum(squares)))


def _distance(first: bytes, second: bytes, layout: Layout) -> float:
    """Return the l2 norm of the difference of exact tensors."""
    if first == second:
        return 0.0
    total = 0.0
    for arrays in zip(layout.unflatten_exact(first).values(), layout.unflatten_exact(second).values(), strict=True):
        new, old = (widened(bfloat16_to_float32(one) if one.dtype == BFLOAT16 else one) for one in arrays)
        total += float(np.square(np.abs(new - old)).sum())
    return math.sqrt(total)
