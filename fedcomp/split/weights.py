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
from fedcomp.wire import Frame, Layout, layout_of, to_numpy

NOT_NEGATIVE = ("running_var", "num_batches_tracked")
"""The names of statistics of BatchNorm that are at least 0."""


def weights_of(model: nn.Module) -> Arrays:
    """Return copies of the tensors in the model's state dict."""
    return {name: np.array(to_numpy(tensor)) for name, tensor in model.state_dict().items()}


def load_weights(model: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Set the tensors of the model's state dict, on the devices where they are."""
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def layout_of_part(model: nn.Module) -> Layout:
    """Return the layout of the model's state dict.

    Raises `ValueError` for tensors that cannot travel, and for tensors of bfloat16 or complex numbers.
    """
    for name, tensor in model.state_dict().items():
        if tensor.dtype == torch.bfloat16 or tensor.is_complex():
            found = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"{name} is {found}; SGD on the nodes trains float32, float64 or float16")
    return layout_of(weights_of(model))


def key_frame(layout: Layout, arrays: Mapping[str, NDArray[Any]], round_number: int) -> Frame:
    """Return the frame of `arrays` in a round; raise `DivergedError` if they are not finite."""
    return start_replica(layout, arrays, round_number).key_frame()


def read_key_frame(frame: Frame, layout: Layout) -> Arrays:
    """Return the weights in a key frame.

    Raises `FedcompError` for damage, for another model, for weights beyond 10^15, and for a variance or a number of batches
    below 0, with which batch normalization computes NaN or divides by 0.
    """
    if frame.layout != layout.digest:
        raise LayoutError("the weights are those of other layers; both ends cut the same model at the same layer")
    replica = from_key_frame(frame)
    if replica.layout.digest != layout.digest:
        raise LayoutError("the layout in the key frame does not fit the digest in its head")
    if (largest := float(np.abs(replica.vector).max())) > MAX_WEIGHT_MAGNITUDE:
        raise CorruptError(f"a weight of magnitude {largest:g}; at most {MAX_WEIGHT_MAGNITUDE:g} is possible")
    arrays = replica.arrays()
    for name, array in arrays.items():
        if name.endswith(NOT_NEGATIVE) and (least := array.min(initial=0)) < 0:
            raise CorruptError(f"{name} is {least:g}; at least 0 is possible")
    return arrays


def mean_weights(parts: Sequence[tuple[int, Arrays]]) -> Arrays:
    """Return the mean of pairs (samples, weights), weighted by the samples; a single part is returned unchanged."""
    if len(parts) == 1:
        return parts[0][1]
    total = max(1, sum(samples for samples, _ in parts))
    mean: Arrays = {}
    for name, first in parts[0][1].items():
        summed = sum(samples / total * arrays[name].astype(np.float64) for samples, arrays in parts)
        mean[name] = np.asarray(summed if first.dtype.kind == "f" else np.rint(summed)).astype(first.dtype)
    return mean


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's weights."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))
