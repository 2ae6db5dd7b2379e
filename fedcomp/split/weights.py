"""The weights of a part of a model as arrays, and as the key frame that carries them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedcomp.core import Arrays
from fedcomp.errors import CorruptError, LayoutError
from fedcomp.sync import MAX_WEIGHT_MAGNITUDE, from_key_frame, start_replica
from fedcomp.wire import (
    BFLOAT16,
    Frame,
    Layout,
    bfloat16_to_float32,
    float32_to_bfloat16,
    layout_of,
    to_numpy,
)


def weights_of(model: nn.Module) -> Arrays:
    """Return copies of the tensors in the model's state dict."""
    return {name: np.array(to_numpy(tensor)) for name, tensor in model.state_dict().items()}


def load_weights(model: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Set the tensors of the model's state dict, on the devices where they are."""
    model.load_state_dict({name: _tensor(np.array(array)) for name, array in arrays.items()})


def layout_of_part(model: nn.Module) -> Layout:
    """Return the layout of the model's state dict; raise `ValueError` for tensors that cannot travel."""
    return layout_of(weights_of(model))


def key_frame(layout: Layout, arrays: Mapping[str, NDArray[Any]], round_number: int) -> Frame:
    """Return the frame of `arrays` in a round; raise `DivergedError` if they are not finite."""
    return start_replica(layout, arrays, round_number).key_frame()


def read_key_frame(frame: Frame, layout: Layout) -> Arrays:
    """Return the weights in a key frame; raise `FedcompError` for damage, for another model and for numbers beyond 10^15."""
    if frame.layout != layout.digest:
        raise LayoutError("the weights are those of other layers; both ends cut the same model at the same layer")
    replica = from_key_frame(frame)
    if replica.layout.digest != layout.digest:
        raise LayoutError("the layout in the key frame does not fit the digest in its head")
    if (largest := float(np.abs(replica.vector).max())) > MAX_WEIGHT_MAGNITUDE:
        raise CorruptError(f"a weight of magnitude {largest:g}; at most {MAX_WEIGHT_MAGNITUDE:g} is possible")
    return replica.arrays()


def mean_weights(parts: Sequence[tuple[int, Arrays]]) -> Arrays:
    """Return the mean of weights, each with the number of samples that it counts for; those of one as they are."""
    if len(parts) == 1:
        return parts[0][1]
    total = max(1, sum(samples for samples, _ in parts))
    mean: Arrays = {}
    for name, first in parts[0][1].items():
        is_bfloat16 = first.dtype == BFLOAT16
        summed = np.zeros(first.shape)
        for samples, arrays in parts:
            values = bfloat16_to_float32(arrays[name]) if is_bfloat16 else arrays[name]
            summed += samples / total * values.astype(np.float64)
        if is_bfloat16:
            mean[name] = float32_to_bfloat16(summed.astype(np.float32))
        else:
            mean[name] = np.asarray(summed if first.dtype.kind == "f" else np.rint(summed)).astype(first.dtype)
    return mean


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's weights."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
