"""The cut in one process: an autograd function whose forward and backward pass send frames, as over a network."""

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedcomp.core import on_host
from fedcomp.split.activations import read_activations, write_activations
from fedcomp.split.gradients import read_gradient, write_gradient
from fedcomp.split.memory import ActivationMemory
from fedcomp.split.settings import MAX_BATCH, SplitSettings
from fedcomp.sync import derive_seed


class Boundary(nn.Module):
    """A layer between the two parts of a model: each part gets the values that it would decode from frames.

    It has the memories of both ends, `sender` and `receiver`; `up_bytes` and `down_bytes` are the bytes of the frames.
    Without gradients, as in an evaluation, activations pass unchanged.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from fedcomp.split import Boundary, SplitSettings
        >>> lower, upper = nn.Linear(8, 4), nn.Linear(4, 2)
        >>> boundary = Boundary(SplitSettings())
        >>> loss = upper(boundary(lower(torch.ones(3, 8)), ids=[5, 0, 9])).sum()
        >>> loss.backward()
        >>> boundary.up_bytes > 3 * 4 * 4  # the first visit is full
        True

    """

    def __init__(self, settings: SplitSettings, seed: int = 0) -> None:
        super().__init__()
        self.settings, self.seed = settings, seed
        self.sender = self.receiver = ActivationMemory(0)
        self.up_bytes = self.down_bytes = self.crossings = 0
        self._shape: tuple[int, ...] = ()

    def forward(self, activations: Tensor, ids: Any) -> Tensor:
        """Return the activations (B, ...) of the samples `ids`, whole numbers (B,), as the receiver decodes them.

        They travel as float32, whatever their dtype.  Raises `ValueError` if there is no sample, if the ids are not different
        whole numbers of at least 0, one per sample, and for activations of another shape than earlier ones.
        """
        if not torch.is_grad_enabled():
            return activations
        numbers = [int(each) for each in ids]
        if not len(activations) == len(set(numbers)) == len(numbers) > 0 or min(numbers) < 0:
            raise ValueError(
                f"ids {numbers} of {len(activations)} samples; a different number from 0 for each is needed"
            )
        crossed = cast("Tensor", _Crossing.apply(activations.float(), self, numbers))  # type: ignore[no-untyped-call]
        return crossed.to(activations.dtype)

    def send(self, activations: Tensor, ids: list[int]) -> Tensor:
        """Send a batch up, and return the activations that arrive."""
        settings, shape = self.settings, tuple(activations.shape[1:])
        size = 0 if settings.direct else math.prod(shape)
        if not self.crossings:
            self.sender, self.receiver, self._shape = ActivationMemory(size), ActivationMemory(size), shape
        if shape != self._shape:
            raise ValueError(f"activations of shape {shape} after those of {self._shape}; a Boundary is for one shape")
        self.crossings += 1
        rows, labels = on_host(activations).reshape(len(ids), -1), [0] * len(ids)
        seed = derive_seed(self.seed, self.crossings)
        frame = write_activations(
            ids, rows, labels, self.sender, settings.upward, shape=shape, seed=seed, direct=settings.direct
        )
        self.up_bytes += frame.size
        for memory in (self.sender, self.receiver):
            batch = read_activations(
                frame, memory, shape, max_batch=MAX_BATCH, max_samples=2**62, direct=settings.direct
            )
            memory.put(batch.ids, batch.rows[:, :size])
            received = batch.rows
        return torch.from_numpy(received).reshape(activations.shape).to(activations.device)

    def send_back(self, gradient: Tensor) -> Tensor:
        """Send a gradient down, and return the gradient that arrives."""
        shape, rows = tuple(gradient.shape[1:]), on_host(gradient).reshape(len(gradient), -1)
        seed = derive_seed(self.seed, self.crossings, 1)
        frame = write_gradient(np.ascontiguousarray(rows), self.settings.backward, shape=shape, seed=seed)
        self.down_bytes += frame.size
        received = read_gradient(frame, len(gradient), shape, 0)
        return torch.from_numpy(received).reshape(gradient.shape).to(gradient.device)


class _Crossing(torch.autograd.Function):
    """Activations up and gradients down through a `Boundary`."""

    @staticmethod
    def forward(ctx: Any, activations: Tensor, boundary: Boundary, ids: list[int]) -> Tensor:
        ctx.boundary = boundary
        return boundary.send(activations, ids)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        boundary: Boundary = ctx.boundary
        return boundary.send_back(grad_outputs[0]), None, None
