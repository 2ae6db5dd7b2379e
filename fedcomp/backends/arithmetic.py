"""The vector operations that memories share, for numpy vectors and for torch tensors on any device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.backends import torch_backend
from fedcomp.core import MAX_FLOAT32, Vector, is_numpy, on_host, writeable
from fedcomp.quantized import Indices, QuantizedVector


def as_like(array: Any, update: Any) -> Any:
    """Return `array`, numpy or torch, as what `update` is: a numpy vector, or a tensor on the same device.

    The result can be changed in place: a read-only array is copied.
    """
    return writeable(on_host(array)) if is_numpy(update) else torch_backend.to_device(array, update)


def is_small(vector: Any) -> bool:
    """Return whether `vector` is a numpy array and all its magnitudes are below 2^64.  Reads the vector once.

    The sum of such a vector and any finite vector is finite.
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


def add_clipped(vector: Any, quantized: QuantizedVector, weight: float) -> None:
    """Add as `add` does, and replace infinities at the entries of `quantized` by the largest float32."""
    add(vector, quantized, weight)
    sparse = quantized.sparse()
    if sparse is not None and is_numpy(vector):
        vector[sparse.indices] = np.clip(vector[sparse.indices], -MAX_FLOAT32, MAX_FLOAT32)
    else:
        clip(vector)


def clip(vector: Any) -> None:
    """Replace infinities by the largest float32, in place: in a memory they would block the sender for good."""
    if not is_numpy(vector):
        vector.clamp_(-MAX_FLOAT32, MAX_FLOAT32)
    elif not is_small(vector):
        np.clip(vector, -MAX_FLOAT32, MAX_FLOAT32, out=vector)


def at(entries: Indices, vector: Any) -> Vector:
    """Return these entries of a numpy vector or a torch tensor, on the host; no other entries are copied there."""
    return vector[entries] if is_numpy(vector) else on_host(vector[torch_backend.to_device(entries, vector)])


def join(vectors: Sequence[Any]) -> Any:
    """Return numpy vectors, or torch tensors on one device, joined in order."""
    return np.concatenate(vectors) if is_numpy(vectors[0]) else torch_backend.join(vectors)


def any_in(vector: Any, parts: Sequence[slice]) -> NDArray[np.bool_]:
    """Return for each of the `parts` whether `vector`, numpy or torch, has an entry there that is not zero, bool (k,)."""
    if is_numpy(vector):
        return np.array([vector[part].any() for part in parts], np.bool_)
    return torch_backend.any_in(vector, parts)


def put(vector: Any, entries: Indices, values: Vector) -> None:
    """Set these entries of a numpy vector or a torch tensor, in place."""
    if is_numpy(vector):
        vector[entries] = values
    else:
        vector[torch_backend.to_device(entries, vector)] = torch_backend.to_device(values, vector)
