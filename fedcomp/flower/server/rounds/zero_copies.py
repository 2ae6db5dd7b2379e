"""Matrices beside the weights that have their shapes and are 0 at first, as control variates and momenta are."""

from collections import defaultdict
from logging import WARNING

from fedcomp.core import Vector, listed
from fedcomp.flower.compat import log
from fedcomp.wire import Layout, TensorFlags

LEAST_PAIRS = 2
"""The least number of pairs: a single layer may have a matrix of zeros beside another one, as in a residual block."""
MAX_NAMES = 5
"""The most names of tensors in the log line."""
TEXT = (
    "fedcomp: round %d: tensors of zeros have the shapes of all other matrices: %s. If they are control variates or momenta, "
    "training does not correct the errors that compression makes in them; send all of these exactly, with exact=, or in a "
    "record of their own"
)


def log_zero_copies(server_round: int, layout: Layout, first: Vector, unchanged: TensorFlags) -> None:
    """Log which matrices of the `first` model, float32 (n,), are 0 and have the shapes of all those that are not.

    `unchanged`, bool (t,), are tensors that no node changes, such as a frozen backbone; they do not count.  Nor do vectors: a
    normalization has one of ones and one of zeros.
    """
    if names := zero_copies(layout, first, unchanged):
        log(WARNING, TEXT, server_round, listed([repr(name) for name in names], MAX_NAMES))


def zero_copies(layout: Layout, first: Vector, unchanged: TensorFlags) -> list[str]:
    """Return the names of these matrices; none if one of the others has no copy."""
    zeros, others = defaultdict[tuple[int, ...], list[str]](list), defaultdict[tuple[int, ...], int](int)
    for (tensor, part), is_unchanged in zip(layout.filled, unchanged, strict=True):
        if len(tensor.shape) < 2 or tensor.size == 1 or is_unchanged:
            continue
        if first[part].any():
            others[tensor.shape] += 1
        else:
            zeros[tensor.shape].append(tensor.name)
    has_copies = all(len(zeros[shape]) >= count for shape, count in others.items())
    if not has_copies or sum(others.values()) < LEAST_PAIRS:
        return []
    return [name for shape in others for name in zeros[shape]]
