"""The few vector operations that memories share, for numpy vectors and for torch tensors on any device."""

from typing import Any

import numpy as np

from fedcomp.backends import torch_backend
from fedcomp.core import MAX_FLOAT32
from fedcomp.quantized import QuantizedVector


def beside(array: Any, update: Any) -> Any:
    """Return `array`, a numpy vector or a tensor, as `update` is: numpy's, or a tensor on the same device."""
    if not isinstance(update, np.ndarray):
        return torch_backend.like(array, update)
    return array if isinstance(array, np.ndarray) else torch_backend.host(array)


def small(*vectors: Any) -> bool:
    """Say whether all entries lie below 2^64, so that no sum of a few of them leaves float32; one read each."""
    with np.errstate(over="ignore", invalid="ignore"):
        return all(isinstance(vector, np.ndarray) and bool(np.isfinite(np.dot(vector, vector))) for vector in vectors)


def add(vector: Any, symbols: QuantizedVector, weight: float) -> None:
    """Add ``weight`` times `symbols` to `vector`, in place."""
    if isinstance(vector, np.ndarray):
        with np.errstate(over="ignore"):
            symbols.add_to(vector, weight)
    else:
        torch_backend.add(vector, symbols, weight)


def bound(vector: Any, symbols: QuantizedVector | None = None) -> None:
    """Bring sums that left float32 back to its largest, in place, where `symbols` were added or everywhere.

    They would block the sender for good.
    """
    if isinstance(vector, np.ndarray):
        sparse = symbols.sparse() if symbols is not None else None
        if sparse is not None:
            vector[sparse.indices] = np.clip(vector[sparse.indices], -MAX_FLOAT32, MAX_FLOAT32)
        elif not small(vector):
            np.clip(vector, -MAX_FLOAT32, MAX_FLOAT32, out=vector)
    else:
        vector.clamp_(-MAX_FLOAT32, MAX_FLOAT32)


def clear(vector: Any, symbols: QuantizedVector) -> None:
    """Set the entries that `symbols` hold to zero, in place."""
    sparse = symbols.sparse()
    if sparse is None:
        vector[:] = 0
    else:
        vector[sparse.indices if isinstance(vector, np.ndarray) else torch_backend.indices(sparse, vector)] = 0
