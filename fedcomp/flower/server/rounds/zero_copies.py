"""Tensors beside the weights that have their shapes and are 0 at first, as control variates and momenta do."""

from collections import defaultdict
from logging import WARNING

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.wire import Layout

MAX_NAMES = 5
"""The most names of tensors in the log line."""
TEXT = (
    "fedcomp: %s are 0 at first, and have the shapes of all other matrices: if they are control variates or momenta, training "
    "does not correct the errors that compression makes in them; let them travel as they are, with exact=, or in a record of "
    "their own"
)


def log_zero_copies(layout: Layout, first: Vector) -> None:
    """Log which tensors of the `first` model, float32 (n,), are 0 and have the shapes of all those that are not.

    Only matrices and tensors of more dimensions tell something, because many biases are 0 at first; vectors do if there are no
    others.
    """
    if names := zero_copies(layout, first):
        log(WARNING, TEXT, listed([repr(name) for name in names], MAX_NAMES))


def zero_copies(layout: Layout, first: Vector) -> list[str]:
    """Return the names of these tensors; none if one of the others has no copy."""
    dimensions = min(2, max((len(tensor.shape) for tensor, _ in layout.filled), default=0))
    zeros, others = defaultdict[tuple[int, ...], list[str]](list), defaultdict[tuple[int, ...], int](int)
    for tensor, part in layout.filled:
        if len(tensor.shape) < dimensions or tensor.size == 1:
            continue
        if first[part].any():
            others[tensor.shape] += 1
        else:
            zeros[tensor.shape].append(tensor.name)
    if any(len(zeros[shape]) < count for shape, count in others.items()):
        return []
    return [name for shape in others for name in zeros[shape]]
