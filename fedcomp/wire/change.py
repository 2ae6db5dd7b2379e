"""The change of a trained model: on the device where it was trained, if all of it is there."""

from collections.abc import Mapping
from typing import Any

from fedcomp.backends import torch_backend
from fedcomp.core import Vector, is_numpy
from fedcomp.wire.dtypes import FLOATS, dtype_of, to_numpy
from fedcomp.wire.layout import Layout


def change_of(layout: Layout, trained: Mapping[str, Any], base: Vector) -> tuple[Any, bytes]:
    """Return what `Layout.flatten` returns for `trained`, numpy arrays or torch tensors, minus the model of the vector `base`.

    If all compressed tensors are torch tensors on one device other than the CPU, the change is a tensor on this device,
    float32 (n,), with the same bits.  Raises as `flatten` does.
    """
    if not _on_one_device(layout, trained):
        return layout.flatten({name: to_numpy(array) for name, array in trained.items()}, base)
    layout.check(trained)
    tensors = [tensor for tensor, _ in layout.parts]
    held = [trained[tensor.name] for tensor in tensors]
    change, finite = torch_backend.subtract(held, base, [tensor.dtype for tensor in tensors])
    for tensor, values, (is_finite, fits) in zip(tensors, held, finite, strict=True):
        if not is_finite:
            raise tensor.not_finite()
        if not fits and values.dtype.itemsize > 4:
            raise tensor.beyond("float32")
    return change, layout.exact_bytes({tensor.name: to_numpy(trained[tensor.name]) for tensor in layout.exact_tensors})


def _on_one_device(layout: Layout, trained: Mapping[str, Any]) -> bool:
    arrays: list[Any] = [trained[tensor.name] for tensor, _ in layout.parts if tensor.name in trained]
    if len(arrays) < len(layout.parts) or any(is_numpy(array) or dtype_of(array) not in FLOATS for array in arrays):
        return False
    devices = {str(array.device) for array in arrays}
    return len(devices) == 1 and "cpu" not in devices
