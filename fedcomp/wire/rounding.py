"""The first model on a coarse grid: a key frame then takes few bits an entry (`whole_vector.py`)."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import MAX_FLOAT32, check_int
from fedcomp.quantized import UNIT
from fedcomp.wire.layout import layout_of

MIN_BITS, MAX_BITS = 2, 16


def rounded(arrays: Mapping[str, NDArray[Any]], bits: int, exact: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the tensors of a model, with each compressed tensor rounded to whole multiples of a power of two.

    Tensors that `exact` names stay as they are.

    The power is the least one with which every multiple takes at most `bits` bits, its sign included, but never below the
    unit of the grid.  Raises `ValueError` for bits that are not 2 to 16, for entries beyond float32, and as `layout_of` does.
    """
    check_int("bits", bits, MIN_BITS, MAX_BITS)
    result = dict(arrays)
    for tensor, _ in layout_of(arrays, exact=exact).parts:
        values = tensor.values_of(np.asarray(arrays[tensor.name])).astype(np.float64)
        largest = float(np.abs(values).max(initial=0.0))
        if largest > MAX_FLOAT32:
            raise ValueError(f"tensor {tensor.name!r} holds {largest:g}; at most {MAX_FLOAT32:g} can be sent")
        if largest:
            step = max(UNIT, 2.0 ** math.ceil(math.log2(largest / (2 ** (bits - 1) - 1))))
            rounded_values = np.rint(values / step) * step + 0.0  # no -0: it is no multiple of the unit
            result[tensor.name] = tensor.shaped(tensor.round(rounded_values))
    return result
