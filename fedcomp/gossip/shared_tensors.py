"""The tensors of a model that nodes exchange, and the tensors that stay on their node."""

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Arrays, Vector, on_host
from fedcomp.sync import MAX_WEIGHT_MAGNITUDE
from fedcomp.wire import Layout, Tensor, change_of, layout_of, to_numpy


@dataclass(frozen=True, slots=True)
class SharedTensors:
    """The `layout` of the floating tensors, which nodes exchange, and `own`: whole numbers, bools and BatchNorm statistics."""

    layout: Layout
    own: tuple[Tensor, ...]

    @classmethod
    def of(cls, model: Mapping[str, NDArray[Any]]) -> "SharedTensors":
        """Return the shared tensors of a model; raise `ValueError` for a model without floating tensors."""
        own = tuple(tensor for tensor in layout_of(model).tensors if tensor.policy == "exact")
        return cls(layout_of(model, local=[glob.escape(tensor.name) for tensor in own]), own)

    def vector(self, arrays: Mapping[str, Any]) -> Vector:
        """Return the floating tensors of `arrays`, numpy or torch, as float32 (n,).

        Raises `ValueError` for tensors that differ from the model's, and for values that are not finite or beyond 10^15.
        """
        own = self.own_of(arrays)
        shared = {name: array for name, array in arrays.items() if name not in own}
        vector = on_host(change_of(self.layout, shared, np.zeros(self.layout.n, np.float32))[0])
        if (largest := float(np.abs(vector).max())) > MAX_WEIGHT_MAGNITUDE:
            raise ValueError(f"a weight of magnitude {largest:g}; at most {MAX_WEIGHT_MAGNITUDE:g} is possible")
        return vector

    def own_of(self, arrays: Mapping[str, Any]) -> Arrays:
        """Return copies of the tensors that stay on their node; raise `ValueError` as `vector` does."""
        return {tensor.name: _own(tensor, arrays) for tensor in self.own}

    def arrays(self, vector: Vector, own: Arrays) -> Arrays:
        """Return all tensors, in the order and the dtypes of the model; none shares memory with the arguments."""
        arrays = self.layout.unflatten(vector, b"") | own
        return {tensor.name: arrays[tensor.name].copy() for tensor in self.layout.tensors}


def _own(tensor: Tensor, arrays: Mapping[str, Any]) -> NDArray[Any]:
    """Return a copy of the array of this name; raise `ValueError` unless it is finite, and fits in shape and kind."""
    if tensor.name not in arrays:
        raise ValueError(f"tensors differ from the model's: missing ['{tensor.name}']")
    array = to_numpy(arrays[tensor.name])
    if array.shape != tensor.shape or not np.can_cast(array.dtype, tensor.wire_dtype, "same_kind"):
        found = f"{array.dtype} {array.shape}"
        raise ValueError(f"tensor {tensor.name!r} is {found}; {tensor.dtype} {tensor.shape} is needed")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"tensor {tensor.name!r} holds NaN or infinity")
    return array.astype(tensor.wire_dtype)
