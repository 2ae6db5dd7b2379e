"""Exact tensors, which travel as they are: their values, their masks, and the same change from another version."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.sync.replica import Replica
from fedcomp.wire import BFLOAT16, Layout, bfloat16_to_float32

ExactArrays = dict[str, NDArray[Any]]
"""Exact tensors by name; a mean of them is float64."""


def rebased_exact(exact: bytes, start: bytes, published: Replica) -> bytes:
    """Return published + (exact - start): apply to the published exact tensors the change that the node made to `start`.

    `start` holds the exact tensors of an older version.  Numbers are computed in float64; bools are taken from `exact`.
    """
    if start == published.exact:
        return exact
    layout = published.layout
    new, old, held = (_numbers(layout.unflatten_exact(each)) for each in (exact, start, published.exact))
    moved = {name: new[name] if new[name].dtype == bool else held[name] + (new[name] - old[name]) for name in held}
    return layout.exact_bytes(moved)


def _numbers(arrays: ExactArrays) -> ExactArrays:
    """Return the arrays in float64 or complex128; bools are unchanged."""
    arrays = arrays | float_values(arrays)
    return {name: array if array.dtype == bool else widened(array) for name, array in arrays.items()}


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
