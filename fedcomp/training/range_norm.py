"""Batch normalization by ranges: few bits represent them better than variances (Banner et al., NeurIPS 2018, section 3)."""

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor, nn

from fedcomp.training.layer_inputs import replaced_forwards

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
CHUNKS = 16
"""The range of a channel is the mean of the ranges of this number of equal parts of its values."""


def normalized_by_ranges(layers: Iterable[BatchNorm]) -> AbstractContextManager[None]:
    """Return a context in which layers of batch normalization divide by `range_deviation` instead of by a deviation."""
    return replaced_forwards((layer, partial(range_batch_norm, layer, layer.forward)) for layer in layers)


def range_deviation(values: Tensor) -> Tensor:
    """Return the standard deviations (C,) of normal values with the same ranges as `values` (C, m).

    Each of 16 parts has n = m / 16 values, rounded down.  The result is kappa (mean of the maxima - mean of the minima) with
    kappa = 0.175 (1 + sqrt(pi ln 4)) / sqrt(2 ln n) (Banner et al., section 3).  There are fewer parts if m is below 32.
    """
    parts = min(CHUNKS, values.shape[1] // 2)
    size = values.shape[1] // parts
    split = values[:, : parts * size].view(-1, parts, size)
    kappa = 0.175 * (1 + math.sqrt(math.pi * math.log(4))) / math.sqrt(2 * math.log(size))
    deviation: Tensor = kappa * (split.amax(2).mean(1) - split.amin(2).mean(1))
    return deviation


def range_batch_norm(layer: BatchNorm, by_deviation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the output of `layer` for `x` (N, C, ...), by means and ranges; `by_deviation` if it uses running statistics.

    Its running variances follow the squares of `range_deviation`, so an evaluation needs no other layer.  Raises `ValueError`
    if a channel has a single value.
    """
    if not layer.training and layer.running_mean is not None:
        return by_deviation(x)
    values = x.float().transpose(0, 1).flatten(1)  # (C, m)
    if values.shape[1] < 2:
        raise ValueError(
            f"a channel of {tuple(x.shape)} has {values.shape[1]} values; batch normalization needs 2 or more in training"
        )
    mean, deviation = values.mean(1), range_deviation(values)
    if layer.training:
        _follow(layer, mean.detach(), deviation.detach().square())
    scale = (deviation.square() + layer.eps).rsqrt()
    if layer.affine:
        scale = scale * layer.weight
    shape = (1, -1) + (1,) * (x.dim() - 2)
    normalized = (x - mean.view(shape)) * scale.view(shape)
    return normalized + layer.bias.view(shape) if layer.affine else normalized


@torch.no_grad()
def _follow(layer: BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics, if there are any, towards those of a batch, as batch normalization does."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked.add_(1)
    weight = layer.momentum if layer.momentum is not None else 1 / float(layer.num_batches_tracked)
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), weight)
    layer.running_var.lerp_(variance.to(layer.running_var.dtype), weight)
