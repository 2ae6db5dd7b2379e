"""Exact tensors, which travel as they are: their values, their masks, and the same change from another version."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.sync.replica import Replica
from fedcomp.wire import BFLOAT16, Layout, bfloat16_to_float32

ExactArrays = dict[str, NDArray[Any]]
"""Exact tensors by name; a mean of them is float64."""


def rebased_exact(exact: bytes, start: bytes, published: Replica) -> bytes:
    """Return the published exact tensors after the change that a node made to `start`, those of an older version.

    Integers count: they move by as much as the node moved them, exactly up to 2^53.  Floats and bools are a state, such as a
    variance, and become what the node sent: the sum of two nodes' changes could be a negative variance.  A tensor that the node
    left alone stays as it is published.
    """
    if start == published.exact:
        return exact
    layout = published.layout
    new, old, held = (layout.unflatten_exact(each) for each in (exact, start, published.exact))
    moved: ExactArrays = {}
    for name, array in held.items():
        if np.array_equal(new[name], old[name]):
            moved[name] = array
        elif array.dtype.kind in "iu":
            moved[name] = widened(array) + (widened(new[name]) - widened(old[name]))
        else:
            moved[name] = new[name]
    return layout.exact_bytes(moved)


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` in float64, or in complex128 if it is complex."""
    return array.astype(np.result_type(array, np.float64))


def float_values(arrays: ExactArrays) -> ExactArrays:
    """Return the arrays of floats and of complex numbers among `arrays`, bfloat16 as float32."""
    values = {name: bfloat16_to_float32(a) if a.dtype == BFLOAT16 else a for name, a in arrays.items()}
    return {name: array for name, array in values.items() if array.dtype.kind in "fc"}


def different_mask(exact: bytes, other: bytes, layout: Layout) -> str | None:
    """Return the name of a mask that differs: only the server changes masks, and a mean of masks is no mask."""
    if exact == other or not layout.masks:
        return None
    new, old = layout.unflatten_exact(exact), layout.unflatten_exact(other)
    return next((mask.name for mask in layout.masks if not np.array_equal(new[mask.name], old[mask.name])), None)
