"""The mean of updates, summed sparsely: at O(kept) per node, in an order fixed by node id."""

from collections.abc import Sequence

import numpy as np

from fedcomp.core import Vector, block_slices
from fedcomp.sync.exact_tensors import ExactArrays, float_values, widened
from fedcomp.sync.updates import Update
from fedcomp.wire import Layout

EPSILON = 2.0**-24
"""The largest relative error of a number that is rounded to float32."""


def weighted_mean(updates: Sequence[tuple[Update, float]], layout: Layout) -> tuple[Vector, ExactArrays]:
    """Return the mean of (update, weight) pairs: the mean change, float32 (n,), and the mean exact tensors, float64.

    The updates are summed in their order.  The weights are at least 0, and not all 0.  An exact tensor that is equal in all
    updates keeps its numbers, but for integers beyond 2^53, which float64 rounds.
    """
    total = sum(weight for _, weight in updates)
    change = np.zeros(layout.n, np.float32)
    exact: ExactArrays = {}
    firsts: ExactArrays = {}
    for update, weight in updates:
        update.change.add_to(change, weight / total * update.factor)
        for name, array in _exact_values(update, layout).items():
            first = firsts.setdefault(name, widened(array))
            exact[name] = exact.get(name, first) + (widened(array) - first) * (weight / total)
    return change, exact


def end_in_zero(change: Vector, start: Vector, count: int) -> None:
    """Set the sum of `start` and `change`, the mean of `count` updates, to zero where only rounding keeps it from zero.

    Otherwise, a weight that all nodes prune would become some 1e-8 of what it was.
    """
    for part in block_slices(change.size):
        before = start[part]
        # Each addition is rounded, and so are the weights of the updates and their products.
        missed = np.abs(before + change[part]) < (count + 2) * EPSILON * np.abs(before)
        if missed.any():
            np.negative(before, out=change[part], where=missed)


def dense_change(update: Update, layout: Layout) -> tuple[Vector, ExactArrays]:
    """Return the change of one update, float32 (n,), and its exact tensors."""
    change = np.zeros(layout.n, np.float32)
    update.change.add_to(change, update.factor)
    return change, _exact_values(update, layout)


def _exact_values(update: Update, layout: Layout) -> ExactArrays:
    arrays = layout.unflatten_exact(update.exact)
    return arrays | float_values(arrays)
