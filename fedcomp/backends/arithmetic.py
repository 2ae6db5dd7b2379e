"""The vector operations that memories share, for numpy vectors and for torch tensors on any device."""

from typing import Any

import numpy as np

from fedcomp.backends import torch_backend
from fedcomp.core import MAX_FLOAT32, is_numpy
from fedcomp.quantized import QuantizedVector


def as_like(array: Any, update: Any) -> Any:
    """Return `array`, a numpy vector or a tensor, as a numpy vector or a tensor on the device of `update`, as that is."""
    if not is_numpy(update):
        return torch_backend.as_like(array, update)
    return array if is_numpy(array) else torch_backend.to_host(array)


def is_small(vector: Any) -> bool:
    """Return whether `vector` is numpy's and all its magnitudes are below 2^64.  Takes one read.

    Adding such a vector to a finite one is finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return is_numpy(vector) and bool(np.isfinite(np.dot(vector, vector)))


def add(vector: Any, quantized: QuantizedVector, weight: float) -> None:
    """Add ``weight`` times `quantized` to `vector`, in place."""
    if is_numpy(vector):
        with np.errstate(over="ignore"):
            quantized.add_to(vector, weight)
    else:
        torch_backend.add(vector, quantized, weight)


def clip(vector: Any, quantized: QuantizedVector | None = None) -> None:
    """Bring infinities back to the largest float32, in place; with `quantized`, only at its entries.

    An infinity in a sender's memory would block that sender for good.
    """
    if is_numpy(vector):
        sparse = quantized.sparse() if quantized is not None else None
        if sparse is not None:
            vector[sparse.indices] = np.clip(vector[sparse.indices], -MAX_FLOAT32, MAX_FLOAT32)
        elif not is_small(vector):
            np.clip(vector, -MAX_FLOAT32, MAX_FLOAT32, out=vector)
    else:
        vector.clamp_(-MAX_FLOAT32, MAX_FLOAT32)


def zero(vector: Any, quantized: QuantizedVector) -> None:
    """Set the entries that `quantized` holds to zero, in place."""
    sparse = quantized.sparse()
    if sparse is None:
        vector[:] = 0
    else:
        vector[sparse.indices if is_numpy(vector) else torch_backend.indices(sparse, vector)] = 0
