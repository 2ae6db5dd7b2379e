"""Which tensors of a model nodes exchange, and which ones stay on their node."""

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Arrays, Vector, on_host
from fedcomp.wire import Layout, change_of, layout_of


@dataclass(frozen=True, slots=True)
class SharedTensors:
    """The `layout` of the floating tensors, which nodes exchange; `own` names whole numbers, bools and BatchNorm statistics."""

    layout: Layout
    own: tuple[str, ...]

    @classmethod
    def of(cls, model: Mapping[str, NDArray[Any]]) -> "SharedTensors":
        """Return those of a model; raise `ValueError` for one without floating tensors."""
        own = tuple(tensor.name for tensor in layout_of(model).tensors if tensor.policy == "exact")
        return cls(layout_of(model, local=[glob.escape(name) for name in own]), own)

    def vector(self, arrays: Mapping[str, Any]) -> Vector:
        """Return the floating tensors of `arrays`, numpy or torch, as float32 (n,).

        Raises `ValueError` for tensors that differ from the model's, and for ones that are not finite.
        """
        if missing := set(self.own) - arrays.keys():
            raise ValueError(f"tensors differ from the model's: missing {sorted(missing)}")
        shared = {name: array for name, array in arrays.items() if name not in self.own}
        vector, _ = change_of(self.layout, shared, np.zeros(self.layout.n, np.float32))
        return on_host(vector)

    def own_of(self, arrays: Mapping[str, Any]) -> Arrays:
        """Return copies of the tensors that stay on their node."""
        return {name: np.array(arrays[name]) for name in self.own}

    def arrays(self, vector: Vector, own: Arrays) -> Arrays:
        """Return all tensors, in the order and the dtypes of the model; none shares memory with the arguments."""
        arrays = self.layout.unflatten(vector, b"") | own
        return {tensor.name: arrays[tensor.name].copy() for tensor in self.layout.tensors}
